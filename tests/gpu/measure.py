#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs everything that is to be known of a GPU and writes one JSON (fields: docs/gpu.md).

Takes a folder that tests/gpu/run.sh --pack has filled, or a build folder. Every part has a limit of
its own and the whole has --seconds; a part that fails, is cut short or does not fit any more stands
in the JSON with the reason, and the others go on.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

SCHEMA = 1
HERE = pathlib.Path(__file__).resolve().parent
# Suites of the kernels, and what the dry run takes of each: the emulator has run them all in the unit
# tests, a few show that the way works.
KERNEL_TESTS = {"rows": "*RowsThatAreNamed*", "linear": "*AddsToTheResidual/F32", "qkv": "*PaddedRows*",
                "attention": "*LeavesPadded*", "blocks": "*NamedBlocks*", "pack": "*OfTheHost/Q4_K",
                "plain": "*SwiGluIs*", "sampling": "*PaddedIds*"}


@dataclasses.dataclass
class Places:
    """Where programs, libraries and data are."""
    bin: pathlib.Path
    tests: pathlib.Path
    lib: pathlib.Path
    data: pathlib.Path

    @staticmethod
    def find(build: pathlib.Path | None, work: pathlib.Path) -> "Places":
        packed = HERE / "programs.tar.gz"
        if packed.exists():
            with tarfile.open(packed) as archive:
                archive.extractall(work / "packed")
            return Places(*(work / "packed" / name for name in ("bin", "tests", "lib", "data")))
        root = HERE.parent.parent
        build = build or root / "build/release"
        return Places(build / "bin", build / "tests", build / "lib", root / "tests/data")


def output_of(*command) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine(device: str) -> dict:
    fields = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit,ecc.mode.current"
    gpu = [] if device == "emulated" else output_of(
        "nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader").splitlines()
    cpu = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.processor())
    packed = HERE / "PACKED"
    return {"gpu_fields": fields, "gpus": gpu, "cpu": cpu, "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": platform.release(), "libc": " ".join(platform.libc_ver()),
            "built": packed.read_text().strip() if packed.exists() else "in this checkout",
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


class Run:
    def __init__(self, places: Places, device: str, seconds: float, work: pathlib.Path):
        self.places, self.device, self.work = places, device, work
        self.end = time.monotonic() + seconds
        self.emulated = device == "emulated"
        self.parts, self.records = [], []
        # Ours first, for our programs alone; CUDA's own where the system does not look for them.
        path = [str(places.lib), os.environ.get("LD_LIBRARY_PATH", ""), "/usr/local/cuda/lib64"]
        self.environment = {**os.environ, "BATON_TEST_DEVICE": device, "BATON_TEST_DATA": str(places.data),
                            "BATON_BIN": str(places.bin), "LD_LIBRARY_PATH": ":".join(filter(None, path)),
                            "TMPDIR": str(work), "TEST_TMPDIR": str(work)}
        if self.emulated:  # the library needs a GPU
            self.environment["BATON_CUBLASLT_LIBRARY"] = str(places.lib / "libbaton_fake_cublaslt.so")

    def part(self, name: str, command: list, limit: float, environment: dict | None = None) -> bool:
        """Runs a program; what it says goes to a file, and its end into the JSON."""
        left = min(limit, self.end - time.monotonic())
        entry = {"part": name, "passed": False}
        self.parts.append(entry)
        if left < 2:
            entry["reason"] = "no time was left for it"
            return False
        if not pathlib.Path(command[0]).exists():
            entry["reason"] = f"{command[0]} is not there"
            return False
        log, start = self.work / f"{name.replace(' ', '_')}.log", time.monotonic()
        with log.open("w") as out:
            child = subprocess.Popen([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT,
                                     env={**self.environment, **(environment or {})}, start_new_session=True)
            try:
                code = child.wait(left)
                if code != 0:
                    entry["reason"] = f"exit code {code}"
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                entry["reason"] = f"cut short after {left:.0f} s"
        entry["seconds"] = round(time.monotonic() - start, 2)
        lines = log.read_text(errors="replace").splitlines()
        if "[==========] Running 0 tests from 0 test suites." in lines:
            entry.setdefault("reason", "it has no such test")
        entry["passed"] = "reason" not in entry
        entry["skipped"] = sum(line.startswith("[  SKIPPED ] ") for line in lines) // 2
        if not entry["passed"]:
            entry["output"] = "\n".join(lines[-40:])
        print(f"{name}: {'passed' if entry['passed'] else entry['reason']} ({entry['seconds']} s)", flush=True)
        return entry["passed"]

    def gtest(self, name: str, test: str, limit: float, filter_: str = "*", environment: dict | None = None) -> None:
        self.part(name, [self.places.tests / test, "--gtest_brief=0", f"--gtest_filter={filter_}"], limit, environment)

    def recorded(self, name: str, command: list, out: pathlib.Path, limit: float) -> None:
        """A program that writes records to `out`: those of one that is cut short count, too."""
        self.part(name, command, limit)
        if out.exists():
            self.records += [dict(json.loads(line), part=name) for line in out.read_text().splitlines() if line]

    def missing(self, what: str, reason: str) -> None:
        self.records.append({"kind": "missing", "what": what, "reason": reason})


def tests(run: Run) -> None:
    shim = {"LD_PRELOAD": str(run.places.lib / "libbaton_gpu_on_device.so")}
    for name, few in KERNEL_TESTS.items():
        run.gtest(f"kernel tests {name}", f"gpu_{name}_test", 60, few if run.emulated else "*", shim)
    run.gtest("model", "gpu_model_test", 120, "GpuLoad.*:GpuDevice.*" if run.emulated else "*")
    run.gtest("windows", "gpu_window_model_test", 60, "*MaskedReference/bf16" if run.emulated else "*")
    run.gtest("tokens chosen there, steps ahead", "gpu_engine_test", 60, "*")
    run.gtest("graph replay", "gpu_model_test", 60, "*ReplayedGraphs*/bf16" if run.emulated else "*ReplayedGraphs*")
    run.gtest("goldens through a pair", "integration_gpu_pair_test", 60, "GpuPair.*")
    run.gtest("kill -9 of either worker", "integration_gpu_pair_test", 60, "*Kill*")
    if not run.emulated:
        run.gtest("workers", "integration_gpu_test", 120, "-GpuAbsent.*")


def figures(run: Run) -> None:
    bench, tiny = run.places.tests / "gpu_bench", "tiny-" if run.emulated else ""
    out = run.work / "kernels.jsonl"
    run.recorded("kernels", [bench, f"{tiny}kernels", run.device, out], out, 120)
    if run.emulated:
        run.missing("PyTorch's figures", "dry run on the emulator")
    else:
        out = run.work / "torch.jsonl"
        system = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        if run.part("torch", ["/bin/sh", "-c", f"python3 '{HERE / 'torch_figures.py'}' > '{out}'"], 60, system):
            run.records += [dict(json.loads(line), part="torch") for line in out.read_text().splitlines()]
    model(run, bench, tiny)
    run.missing("NCCL with itself as a peer", "the transport needs two GPUs; there is no measurement of it yet")


def model(run: Run, bench: pathlib.Path, tiny: str) -> None:
    if run.emulated:
        out = run.work / "model.jsonl"
        run.recorded("model figures", [bench, f"{tiny}model", run.device, out, "embedded"], out, 60)
        return
    for weights in ("int4", "f16", "int8"):
        file, out = run.work / f"chatglm2-6b-{weights}.gguf", run.work / f"model-{weights}.jsonl"
        if run.part(f"make {weights} model", [run.places.bin / "baton", "make-model", "--shape", "chatglm2-6b",
                                              "--weights", weights, file], 90):
            run.recorded(f"ChatGLM2-6B {weights}", [bench, "model", run.device, out, file], out, 90)
            library = run.work / f"library-{weights}.jsonl"
            run.recorded(f"ChatGLM2-6B {weights} cuBLASLt", [bench, "library-model", run.device, library, file],
                         library, 60)
        file.unlink(missing_ok=True)


def ceilings(records: list) -> dict:
    """The most of anything that was measured in this run."""
    def most(field: str, chosen) -> float | None:
        return max((r[field] for r in records if field in r and chosen(r)), default=None)
    return {"copy_gb_per_s": most("gb_per_s", lambda r: r.get("kernel") == "CopyBlocks" or r.get("what") == "copy"),
            "gemm_tflop_per_s": most("tflop_per_s", lambda r: r.get("kernel") == "Gemm" or r.get("what") == "gemm bf16")}


def add_shares(records: list, top: dict) -> None:
    for record in records:
        if record.get("kind") != "kernel":
            continue
        if top["copy_gb_per_s"] and record["gb_per_s"]:
            record["share_of_copy"] = round(record["gb_per_s"] / top["copy_gb_per_s"], 4)
        if top["gemm_tflop_per_s"] and record["tflop_per_s"]:
            record["share_of_gemm"] = round(record["tflop_per_s"] / top["gemm_tflop_per_s"], 4)
    torch = {r["shape"]: r["tflop_per_s"] for r in records if r.get("what") == "scaled_dot_product_attention"}
    for record in records:
        if str(record.get("kernel", "")).startswith("PrefillAttention") and record["shape"] in torch:
            record["share_of_torch"] = round(record["tflop_per_s"] / torch[record["shape"]], 4)
    loads = {r["part"]: r["weight_bytes"] for r in records if r.get("kind") == "load"}
    for record in records:
        if record.get("kind") == "decode" and top["copy_gb_per_s"] and record["part"] in loads:
            floor = loads[record["part"]] / top["copy_gb_per_s"] / 1e6
            record["times_weights_over_bandwidth"] = round(record["milliseconds_median"] / floor, 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or emulated")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the JSON to write")
    parser.add_argument("--build", type=pathlib.Path, help="the build folder; default build/release")
    parser.add_argument("--seconds", type=float, default=570, help="of everything together")
    arguments = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="baton-gpu-"))
    run = Run(Places.find(arguments.build, work), arguments.device, arguments.seconds, work)
    start = time.monotonic()
    for step in (tests, figures):
        step(run)
    top = ceilings(run.records)
    add_shares(run.records, top)
    if top["gemm_tflop_per_s"] is None:
        run.missing("GEMM ceiling", "neither cuBLASLt nor PyTorch gave one")
    result = {"schema": SCHEMA, "device": arguments.device,
              "figures": "of the emulator: no figure here is one of a GPU" if run.emulated else "measured",
              "machine": machine(arguments.device), "seconds": round(time.monotonic() - start, 1),
              "parts": run.parts, "ceilings": top, "records": run.records}
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    failed = [part["part"] for part in run.parts if not part["passed"]]
    print(f"{len(run.parts) - len(failed)} parts passed, {len(failed)} failed; {arguments.out}")
    shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
