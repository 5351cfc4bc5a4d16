#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every GPU kernel, without a GPU, and compares what the compiler made of it.

nvcc: for sm_80, 86, 89 and 90a, any warning is an error, so is a spilled register or a byte of
local memory. Registers, shared memory, blocks per multiprocessor and the tensor-core and copy
instructions of each kernel must be those of kernel_resources.txt when the compiler is the one that
made the table; other versions only report. The objects are linked to the plugin libbaton_cuda.so
(--plugin keeps it). hipcc: gfx90a and gfx1030. A compiler that is not
installed is skipped with a sentence; exit code 77 when none of the two is there.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCES = sorted((ROOT / "kernels" / "cuda").glob("*.cu"))
RUNTIME = [ROOT / "kernels" / "cuda" / name for name in ("runtime/cuda_table.cu", "runtime/shared_memory.cu",
                                                         "runtime/transfer_table.cu",
                                                         "gemm/cublaslt_gemm.cc", "gemm/cublaslt_table.cc")]
TABLE = pathlib.Path(__file__).with_name("kernel_resources.txt")
ARCHS = ["80", "86", "89", "90a"]
HIP_ARCHS = ["gfx90a", "gfx1030"]
SKIPPED = 77
# Per multiprocessor: warps, blocks, bytes of shared memory.
LIMITS = {"80": (64, 32, 164 << 10), "86": (48, 16, 100 << 10), "89": (48, 24, 100 << 10),
          "90a": (64, 32, 228 << 10)}
MOST_PER_BLOCK = {"80": 163 << 10, "86": 99 << 10, "89": 99 << 10, "90a": 227 << 10}
INSTRUCTIONS = ["mma.sync", "cp.async.cg", "ld.global.v4", "ld.shared.v4"]


def find(name: str, folder: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=folder)


def nvcc_version(nvcc: str) -> str:
    out = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release [\d.]+, V([\d.]+)", out).group(1)


def compile_cuda(nvcc: str, source: pathlib.Path, folder: pathlib.Path) -> tuple[str, str, str]:
    """What ptxas said, and the PTX for sm_80 and for sm_90a; raises with the compiler's output."""
    keep = folder / source.stem
    keep.mkdir()
    command = [nvcc, "-std=c++20", "-O3", "-ccbin", "g++", f"-I{ROOT}", "--keep", "--keep-dir", keep,
               "-Werror", "all-warnings", "-Xptxas", "-v,-warn-spills,-warn-lmem-usage",
               "-Xcompiler", "-Wall,-Wextra,-fPIC,-fvisibility=hidden", "-c", source, "-o", keep / "out.o"]
    for arch in ARCHS:
        command += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{source.name}: nvcc failed\n{done.stdout}{done.stderr}")
    if source in RUNTIME:
        return "", "", ""
    ptx = {arch: next(path.read_text() for path in keep.glob("*.ptx") if re.search(rf"(compute|sm)_{arch}", path.name))
           for arch in ("80", "90a")}
    return done.stderr + done.stdout, ptx["80"], ptx["90a"]


def link(nvcc: str, folder: pathlib.Path, plugin: pathlib.Path) -> None:
    """The plugin, with the CUDA runtime inside and nothing undefined but the C library."""
    home = pathlib.Path(nvcc).resolve().parent.parent
    runtime = next(iter(sorted(home.glob("**/libcudart_static.a"))), None)
    if runtime is None:
        raise RuntimeError(f"no libcudart_static.a below {home}")
    objects = sorted(folder.glob("*/out.o"))
    plugin.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["g++", "-shared", "-Wl,--no-undefined", "-Wl,--exclude-libs,ALL", *objects, runtime,
                           "-lpthread", "-ldl", "-lrt", "-o", plugin], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{plugin.name} does not link\n{done.stderr}")
    needed = subprocess.run(["readelf", "-d", plugin], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"NEEDED.*\[(.*)\]", needed):
        if not re.match(r"(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|ld-linux-[\w-]+)\.so", library):
            raise RuntimeError(f"{plugin.name} needs {library}")
    print(f"{plugin.name}: {plugin.stat().st_size >> 10} KiB")


def readable(mangled: str) -> str:
    name = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout
    name = re.sub(r"baton::gpu::|\(anonymous namespace\)::", "", name.strip())
    name = re.sub(r"^void ", "", name)
    # Up to the parameters; template arguments hold parentheses, too.
    name = name[:name.rindex("(")]
    for kind, values in {"WeightFormat": ["bf16", "int8", "int4", "int4-affine"],
                         "KvElement": ["bf16", "int8"], "TableType": ["f32", "f16", "bf16"]}.items():
        name = re.sub(rf"\({kind}\)(\d)", lambda m, v=values: v[int(m.group(1))], name)
    name = re.sub(r"\(int\)|\(unsigned int\)|\s", "", name)
    # nvcc names the file's namespace.
    return re.sub(r"_GLOBAL__N__\w+::", "", name).strip()


def dynamic_shared(name: str) -> int:
    """Bytes that the launch asks for beside static ones: linear.cu's Shape, attention.h's Block."""
    if match := re.fullmatch(r"LinearKernel<Shape<([\w-]+),(\d+),(\d+),(\d+),(\d+),(\d+)>>", name):
        record = {"bf16": 1024, "int8": 544, "int4": 288, "int4-affine": 320}[match.group(1)]
        warps, tiles, rows, groups, stages = (int(value) for value in match.groups()[1:])
        return stages * groups * (warps * tiles * record + rows * 512)
    if match := re.fullmatch(r"(Decode|Prefill)Kernel<(\d+),(\w+)>", name):
        dim = int(match.group(2))
        slice_bytes = 32 * dim * 2 if match.group(3) == "bf16" else 32 * dim + 64
        return (4 if match.group(1) == "Decode" else 2) * 2 * slice_bytes
    return 0


def blocks_per_multiprocessor(arch: str, threads: int, registers: int, shared: int) -> int:
    most_warps, most_blocks, most_shared = LIMITS[arch]
    warps = (threads + 31) // 32
    registers_of_warp = (registers * 32 + 255) // 256 * 256
    by_registers = 65536 // registers_of_warp // warps
    by_shared = most_shared // ((shared + 127) // 128 * 128 + 1024)
    return min(most_warps // warps, most_blocks, by_registers, by_shared)


def threads_of(ptx: str) -> dict[str, int]:
    found = {}
    for match in re.finditer(r"\.entry (\w+)\((.*?)\n\{", ptx, re.DOTALL):
        found[match.group(1)] = int(re.search(r"\.maxntid (\d+)", match.group(2)).group(1))
    return found


def bodies_of(ptx: str) -> dict[str, str]:
    parts = re.split(r"\.entry (\w+)\(", ptx)
    return dict(zip(parts[1::2], parts[2::2]))


def check_overlap(ptx80: str, ptx90: str) -> None:
    """Every kernel waits for those before it and lets the next begin (sm_90); before sm_90 none can."""
    for mangled, body in bodies_of(ptx90).items():
        for instruction in ("griddepcontrol.wait", "griddepcontrol.launch_dependents"):
            if instruction not in body:
                raise RuntimeError(f"{readable(mangled)}: no {instruction} in its PTX for sm_90a")
    if "griddepcontrol" in ptx80:
        raise RuntimeError("griddepcontrol in PTX for sm_80")


def rows_of(log: str, ptx: str) -> list[str]:
    threads = threads_of(ptx)
    rows = []
    for mangled, arch, text in re.findall(
            r"Compiling entry function '(\w+)' for 'sm_(\w+)'(.*?)(?=Compiling entry|\Z)", log, re.DOTALL):
        name = readable(mangled)
        registers = int(re.search(r"Used (\d+) registers", text).group(1))
        static = re.search(r"(\d+) bytes smem", text)
        shared = (int(static.group(1)) if static else 0) + dynamic_shared(name)
        if shared > MOST_PER_BLOCK[arch]:
            raise RuntimeError(f"{name}: {shared} bytes of shared memory; sm_{arch} has {MOST_PER_BLOCK[arch]}")
        for what in ("bytes stack frame", "bytes spill stores"):
            if int(re.search(rf"(\d+) {what}", text).group(1)) != 0:
                raise RuntimeError(f"{name}: {what} on sm_{arch}")
        count = threads[mangled]
        rows.append(f"{name} sm_{arch} threads {count} registers {registers} shared {shared} "
                    f"blocks {blocks_per_multiprocessor(arch, count, registers, shared)}")
    for mangled, body in bodies_of(ptx).items():
        if re.search(r"\.local\b", body):
            raise RuntimeError(f"{readable(mangled)}: local memory in PTX")
        counts = " ".join(f"{name} {body.count(name)}" for name in INSTRUCTIONS)
        rows.append(f"{readable(mangled)} ptx {counts}")
    return rows


def check_floors(rows: list[str]) -> None:
    """What no version of the compiler may lose."""
    for row in rows:
        name, kind = row.split()[:2]
        if kind != "ptx" or not re.match(r"(Linear|Decode|Prefill)Kernel", name):
            continue
        for instruction in ("mma.sync", "cp.async.cg"):
            if int(re.search(rf"{re.escape(instruction)} (\d+)", row).group(1)) == 0:
                raise RuntimeError(f"{name}: no {instruction} in its PTX")


def compare(rows: list[str], version: str) -> bool:
    stored = TABLE.read_text().splitlines()
    by = re.search(r"nvcc (\d+(?:\.\d+)*)", stored[1]).group(1)
    expected = set(line for line in stored if line and not line.startswith("#"))
    differences = [f"- {row}" for row in sorted(expected - set(rows))]
    differences += [f"+ {row}" for row in sorted(set(rows) - expected)]
    if not differences:
        print(f"nvcc {version}: {len(rows)} rows, all as in {TABLE.name}")
        return True
    print("\n".join(differences))
    if by != version:
        print(f"{len(differences)} differences; the table is of nvcc {by}, this is {version}: reported only")
        return True
    print(f"{TABLE.name} differs (tests/gpu/compile.py --update writes it anew)")
    return False


def run_cuda(nvcc: str, update: bool, plugin: pathlib.Path | None) -> bool:
    version = nvcc_version(nvcc)
    rows = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_cuda, nvcc, source, pathlib.Path(folder)) for source in [*RUNTIME, *SOURCES]]
        for job in jobs:
            log, ptx80, ptx90 = job.result()
            check_overlap(ptx80, ptx90)
            rows += rows_of(log, ptx80)
        link(nvcc, pathlib.Path(folder), plugin or pathlib.Path(folder) / "libbaton_cuda.so")
    rows.sort()
    check_floors(rows)
    if update:
        TABLE.write_text("# SPDX-License-Identifier: Apache-2.0\n"
                         f"# Written by tests/gpu/compile.py --update with nvcc {version}.\n"
                         "# shared: static and dynamic bytes of a block; blocks: of a multiprocessor at once.\n"
                         + "\n".join(rows) + "\n")
    return compare(rows, version)


def compile_hip(hipcc: str, source: pathlib.Path) -> str:
    """What the compiler had against the file; empty: nothing."""
    with tempfile.NamedTemporaryFile(suffix=".o") as out:
        done = subprocess.run(
            [hipcc, "-x", "hip", "-std=c++20", "-O3", "-ffp-contract=off", "-Wall", "-Werror", f"-I{ROOT}",
             *(f"--offload-arch={arch}" for arch in HIP_ARCHS), "-c", source, "-o", out.name],
            capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{source.name}: hipcc failed\n{done.stderr}"


def run_hip(hipcc: str) -> bool:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [text for text in pool.map(lambda source: compile_hip(hipcc, source), SOURCES) if text]
    print("\n".join(problems) if problems else f"hipcc: {len(SOURCES)} files for {', '.join(HIP_ARCHS)}")
    return not problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write kernel_resources.txt")
    parser.add_argument("--plugin", type=pathlib.Path, help="where to put libbaton_cuda.so")
    parser.add_argument("--skip-hip", action="store_true", help="NVIDIA alone")
    arguments = parser.parse_args()
    nvcc, hipcc = find("nvcc", "/usr/local/cuda/bin"), find("hipcc", "/opt/rocm/bin")
    passed = True
    try:
        if nvcc is None:
            print("skipped: nvcc is not installed (CUDA 12 or later compiles the kernels for NVIDIA GPUs)")
        else:
            passed = run_cuda(nvcc, arguments.update, arguments.plugin)
        if arguments.skip_hip:
            hipcc = None
        elif hipcc is None:
            print("skipped: hipcc is not installed (Debian's package hipcc compiles the kernels for AMD GPUs)")
        else:
            passed = run_hip(hipcc) and passed
    except RuntimeError as problem:
        print(problem)
        return 1
    if nvcc is None and hipcc is None:
        return SKIPPED
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
