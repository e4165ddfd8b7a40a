#!/usr/bin/env python3
"""Runs the scenarios of tests/scenarios, each in a process of its own with a time limit.

    tests/run.py                 all of them, in the short form for CI
    FULL=1 tests/run.py NAME...  some of them, in the long form

Ends with one line 'N passed, N failed', counted over the cases of all scenarios.
"""

import ast
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FULL = os.environ.get("FULL", "") not in ("", "0")


def limits(path):
    """LIMIT_SECONDS = (short form, long form) of a scenario file."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "LIMIT_SECONDS":
            return ast.literal_eval(node.value)[FULL]
    raise SystemExit(f"{path.name} has no LIMIT_SECONDS")


def run_one(path, result):
    """(passed, failed, seconds) of one scenario."""
    start = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(HERE), "APUS_TEST_RESULT": str(result), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen([sys.executable, str(path)], env=environment, stdin=subprocess.DEVNULL)
    late = False
    try:
        process.wait(limits(path))
    except subprocess.TimeoutExpired:
        late = True
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    passed, failed = json.loads(result.read_text()) if result.exists() else (0, 0)
    if late:
        print(f"  FAIL  {path.stem}: longer than {limits(path)} s", flush=True)
    if (late or process.returncode != 0) and failed == 0:
        failed = 1
    return passed, failed, time.monotonic() - start


def main():
    scenarios = sorted((HERE / "scenarios").glob("*.py"))
    wanted = sys.argv[1:]
    unknown = set(wanted) - {p.stem for p in scenarios}
    if unknown:
        raise SystemExit(f"no such scenario: {', '.join(sorted(unknown))}")
    passed = failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for path in scenarios:
            if wanted and path.stem not in wanted:
                continue
            print(f"{path.stem}", flush=True)
            p, f, seconds = run_one(path, pathlib.Path(directory) / path.stem)
            passed, failed = passed + p, failed + f
            print(f"{path.stem}: {p} ok, {f} failed, {seconds:.0f} s", flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
