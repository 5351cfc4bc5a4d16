#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants the faults of mutations.txt into the GPU kernels, one at a time, and expects the tests to fail.

Each faulty kernel is compiled for the emulator and put in the place of the library that the test
binaries are linked with. A fault that no test notices fails this check, and so does the same
procedure without a fault when a test fails.
"""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KERNELS = ROOT / "kernels" / "cuda"
LIST = pathlib.Path(__file__).with_name("mutations.txt")
FLAGS = ["-std=c++20", "-O1", "-fPIC", "-ffp-contract=off", "-w", "-x", "c++"]
TEST_SECONDS = 120


def read_list() -> list[tuple[str, str, str, str]]:
    entries = []
    for line in LIST.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip().replace("\\n", "\n").replace("\0", "|")
                 for part in line.replace("\\|", "\0").split(" | ")]
        if len(parts) != 4:
            sys.exit(f"{LIST.name}: four parts are needed: {line}")
        entries.append(tuple(parts))
    return entries


def users_of(name: str) -> list[str]:
    """The kernel files that a fault in `name` changes."""
    if name.endswith(".cu"):
        return [name]
    include = f'"kernels/cuda/{name}"'
    return sorted(path.name for path in KERNELS.glob("*.cu") if include in path.read_text())


class Bench:
    def __init__(self, build: pathlib.Path):
        self.tests = build / "tests"
        self.objects = build / "kernels" / "cuda" / "CMakeFiles" / "baton_gpu_emulated.dir"

    def run(self, name: str, test: str, old: str, new: str) -> tuple[bool, str]:
        """Whether the test passed with the fault, and what to say."""
        text = (KERNELS / name).read_text()
        if text.count(old) != 1:
            return True, f"stands {text.count(old)} times in {name}, not once"
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "kernels" / "cuda"
            shutil.copytree(KERNELS, copy)
            (copy / name).write_text(text.replace(old, new))
            library, error = self.build(pathlib.Path(folder), users_of(name))
            if library is None:
                return True, f"does not compile: {error}"
            return self.test(library, test)

    def build(self, folder: pathlib.Path, files: list[str]) -> tuple[pathlib.Path | None, str]:
        objects = [path for path in self.objects.rglob("*.o") if path.name.removesuffix(".o") not in files]
        for file in files:
            out = folder / f"{file}.o"
            done = subprocess.run(["g++", *FLAGS, f"-I{folder}", f"-I{ROOT}", "-c",
                                   folder / "kernels" / "cuda" / file, "-o", out],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                return None, done.stderr[:600]
            objects.append(out)
        library = folder / "libbaton_gpu_emulated.so"
        done = subprocess.run(["g++", "-shared", *objects, "-o", library], capture_output=True, text=True)
        return (library, "") if done.returncode == 0 else (None, done.stderr[:600])

    def test(self, library: pathlib.Path, test: str) -> tuple[bool, str]:
        try:
            done = subprocess.run([self.tests / test, "--gtest_fail_fast", "--gtest_brief=1"],
                                  env={**os.environ, "LD_PRELOAD": str(library)},
                                  capture_output=True, text=True, timeout=TEST_SECONDS)
        except subprocess.TimeoutExpired:
            return False, "ran too long"
        return done.returncode == 0, "passes all tests"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--only", default="", help="faults whose file name contains this")
    arguments = parser.parse_args()
    bench = Bench(arguments.build)
    entries = [entry for entry in read_list() if arguments.only in entry[0]]
    survived = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        sound = [pool.submit(bench.run, name, test, "// SPDX", "//  SPDX")
                 for name, test in sorted({(name, test) for name, test, _, _ in entries})]
        jobs = [(entry, pool.submit(bench.run, *entry)) for entry in entries]
        for job in sound:
            passed, problem = job.result()
            if not passed or problem != "passes all tests":
                survived.append(f"without a fault: {problem if passed else 'a test fails'}")
        for (name, test, old, _), job in jobs:
            passed, problem = job.result()
            if passed:
                survived.append(f"{name}, {test}: {old!r}: {problem}")
    print(f"{len(entries)} faults, {len(entries) - len(survived)} noticed")
    print("\n".join(survived), end="\n" if survived else "")
    return 1 if survived or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
