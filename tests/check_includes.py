#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a source file includes a folder that the architecture forbids it to.

The allowed directions stand in cmake/include_directions.txt. With --self-test it checks that
a forbidden include would be found.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RULES = ROOT / "cmake" / "include_directions.txt"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def read_rules() -> dict[str, set[str]]:
    rules = {}
    for line in RULES.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            module, _, allowed = line.partition(":")
            rules[module.strip()] = set(allowed.split())
    return rules


def module_of(path: str, rules: dict[str, set[str]]) -> str | None:
    """The longest rule that is a prefix of `path`, by folder."""
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        candidate = "/".join(parts[:length])
        if candidate in rules:
            return candidate
    return None


def problems_of(path: str, text: str, rules: dict[str, set[str]]) -> list[str]:
    module = module_of(path, rules)
    if module is None:
        return [f"{path}: its folder is not in {RULES.name}"]
    found = []
    for target in INCLUDE.findall(text):
        other = module_of(target, rules)
        if other is not None and other != module and other not in rules[module]:
            found.append(f"{path}: {module} must not include {other} ({target})")
    return found


def self_test(rules: dict[str, set[str]]) -> list[str]:
    forbidden = '#include "common/engine/engine.h"\n'
    return [] if problems_of("router/example.cc", forbidden, rules) else ["self-test: not found"]


def main() -> int:
    rules = read_rules()
    if "--self-test" in sys.argv:
        problems = self_test(rules)
    else:
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.h", "*.cc"],
                               cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
        problems = [p for f in files if not f.startswith("tests/") and (ROOT / f).exists()
                    for p in problems_of(f, (ROOT / f).read_text(), rules)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
