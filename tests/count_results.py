#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up ctest's JUnit files: prints "passed failed skipped".

A GoogleTest binary is one ctest entry; its own tests are counted from its output, so that
a test skipped inside of a passing binary does not go unseen.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree


def count_case(case: ElementTree.Element) -> tuple[int, int, int]:
    output = case.findtext("system-out") or ""
    ok = len(re.findall(r"^\[       OK \]", output, re.MULTILINE))
    bad = len(set(re.findall(r"^\[  FAILED  \] (\S+)", output, re.MULTILINE)))
    skipped = len(re.findall(r"^\[  SKIPPED \] \S+ \(", output, re.MULTILINE))
    if case.find("failure") is not None or case.get("status") not in ("run", None):
        return ok, max(bad, 1), skipped
    if ok + bad + skipped == 0:  # not a GoogleTest binary
        return 1, 0, 0
    return ok, bad, skipped


def main() -> None:
    totals = [0, 0, 0]
    for path in sys.argv[1:]:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            for index, value in enumerate(count_case(case)):
                totals[index] += value
    print(*totals)


if __name__ == "__main__":
    main()
