#!/usr/bin/env python3
"""Runs the scenarios of tests/scenarios, each in a process of its own with a time limit.

    tests/run.py                 all of them, in the short form for CI
    FULL=1 tests/run.py NAME...  some of them, in the long form

Ends with what failed, once more, a line about where the time went, and one line 'N passed, N failed', counted over the cases of all scenarios; also when it is told
to stop.
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
STOPPED, RUNNING = [], []
LINES_OF_FAILURE = 12
FULL = os.environ.get("FULL", "") not in ("", "0")


def limits(path):
    """LIMIT_SECONDS = (short form, long form) of a scenario file."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "LIMIT_SECONDS":
            return ast.literal_eval(node.value)[FULL]
    raise SystemExit(f"{path.name} has no LIMIT_SECONDS")


def run_one(path, result):
    """(cases that passed, what is printed of those that failed, seconds) of one scenario."""
    start = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(HERE), "APUS_TEST_RESULT": str(result), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen([sys.executable, str(path)], env=environment, stdin=subprocess.DEVNULL)
    RUNNING.append(process)
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
    RUNNING.remove(process)
    passed, failures = json.loads(result.read_text()) if result.exists() else (0, [])
    if late:
        failures.append(f"  FAIL  {path.stem}: longer than {limits(path)} s")
        print(failures[-1], flush=True)
    if process.returncode != 0 and not failures:
        failures.append(f"  FAIL  {path.stem}: ended with {process.returncode}")
    return passed, failures, time.monotonic() - start


def told_to_stop(*_):
    STOPPED.append(True)
    for process in RUNNING:
        process.send_signal(signal.SIGTERM)


def what_failed_and_where_the_time_went(failures, took):
    """CI keeps the last lines of a long run."""
    for failure in failures:
        name, *why = failure.splitlines()
        print("\n".join([name, *why[-LINES_OF_FAILURE:]]), flush=True)
    slowest = sorted(took, key=took.get, reverse=True)[:12]
    before = os.environ.get("CI_PHASES", "")
    print(f"time: {before}scenarios {sum(took.values()):.0f} s, of these {', '.join(f'{name} {took[name]:.0f}' for name in slowest)}", flush=True)


def main():
    scenarios = sorted((HERE / "scenarios").glob("*.py"))
    wanted = sys.argv[1:]
    unknown = set(wanted) - {p.stem for p in scenarios}
    if unknown:
        raise SystemExit(f"no such scenario: {', '.join(sorted(unknown))}")
    passed, failures, took = 0, [], {}
    signal.signal(signal.SIGTERM, told_to_stop)
    with tempfile.TemporaryDirectory() as directory:
        for path in scenarios:
            if STOPPED:
                break
            if wanted and path.stem not in wanted:
                continue
            print(f"{path.stem}", flush=True)
            p, failed, took[path.stem] = run_one(path, pathlib.Path(directory) / path.stem)
            passed, failures = passed + p, failures + failed
            print(f"{path.stem}: {p} ok, {len(failed)} failed, {took[path.stem]:.0f} s", flush=True)
    what_failed_and_where_the_time_went(failures, took)
    print(f"{passed} passed, {len(failures)} failed", flush=True)
    sys.exit(1 if failures or STOPPED or not passed else 0)


if __name__ == "__main__":
    main()
