#!/usr/bin/env python3
"""Assertions that stay on in release, per thousand lines of code, of the crates that hold the data.

    scripts/assertions.py [CRATE[/ROOM]...]     the rooms of blocks that hold a conversation (TC, LDM, QMGR, DIH), and storage, unless told otherwise

A line of code is one that is neither blank nor a comment, outside of tests. Counted are assert!, assert_eq!, assert_ne!, ensure!, panic! and
.expect(; not what the compiler checks (`const _`) and not what `verify` finds in tests.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ASSERTION = re.compile(r"\b(?:assert|assert_eq|assert_ne|ensure|panic)!\(|\.expect\(")
TESTS = re.compile(r"^(tests?|tests_.*|testing|harness)$")


def code_lines(path):
    """The lines of a file that are no tests: a module of tests ends the file."""
    for line in re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", path.read_text(), flags=re.MULTILINE)[0].splitlines():
        line = line.strip()
        if line and not line.startswith("//"):
            yield line


def count(crate):
    lines = assertions = 0
    crate, _, room = crate.partition("/")
    source = ROOT / "crates" / crate / "src"
    for path in sorted((source / room).rglob("*.rs")):
        if any(TESTS.match(part.removesuffix(".rs")) for part in path.relative_to(source).parts):
            continue
        for line in code_lines(path):
            lines += 1
            assertions += 0 if line.startswith("const _") else len(ASSERTION.findall(line))
    return lines, assertions


def main():
    crates = sys.argv[1:] or ["blocks/tc", "blocks/ldm", "blocks/qmgr", "blocks/dih", "storage"]
    counts = {crate: count(crate) for crate in crates}
    for crate, (lines, assertions) in counts.items():
        print(f"{crate:11} {lines:6} lines of code, {assertions:4} assertions, {assertions * 1000 / lines:5.1f} per thousand")
    lines, assertions = (sum(c[i] for c in counts.values()) for i in (0, 1))
    print(f"{'together':11} {lines:6} lines of code, {assertions:4} assertions, {assertions * 1000 / lines:5.1f} per thousand")


if __name__ == "__main__":
    main()
