#!/usr/bin/env python3
"""Runs the scenarios of tests/scenarios, each in a process of its own with a time limit.

    tests/run.py                 all of them, in the short form for CI
    FULL=1 tests/run.py NAME...  some of them, in the long form

Scenarios that say SIDE_BY_SIDE = True measure no time and need no whole machine: they come first, two at a time, and what one says is printed when it has ended.

Ends with what failed, once more, a line about where the time went, and one line 'N passed, N failed', counted over the cases of all scenarios; also when it is told
to stop.
"""

import ast
import concurrent.futures
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
LINES_OF_FAILURE = 30
AT_A_TIME = 2
FULL = os.environ.get("FULL", "") not in ("", "0")


class Scenario:
    """A file of tests/scenarios. LIMIT_SECONDS = (short form, long form) it must have, SIDE_BY_SIDE it may."""

    def __init__(self, path, results):
        self.path, self.name = path, path.stem
        self.result, self.said = results / f"{path.stem}.json", results / f"{path.stem}.log"
        said = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
        constants = {getattr(node.targets[0], "id", ""): node.value for node in said}
        if "LIMIT_SECONDS" not in constants:
            raise SystemExit(f"{path.name} has no LIMIT_SECONDS")
        self.limit = ast.literal_eval(constants["LIMIT_SECONDS"])[FULL]
        self.side_by_side = "SIDE_BY_SIDE" in constants and ast.literal_eval(constants["SIDE_BY_SIDE"])
        self.passed, self.failures, self.seconds = 0, [], 0.0

    def run(self):
        """In a process of its own, to its end; what it says is printed as it comes."""
        print(self.name, flush=True)
        print(self.judged(*self.process(None)), flush=True)

    def run_beside_others(self):
        """What it says is printed at the end."""
        if not STOPPED:
            with open(self.said, "wb") as out:
                ended = self.process(out)
            print("\n".join([self.name, self.said.read_text(errors="replace").rstrip("\n"), self.judged(*ended)]), flush=True)

    def judged(self, late, code, seconds):
        """Counts its cases; the last lines about it."""
        if self.result.exists():
            self.passed, self.failures = json.loads(self.result.read_text())
        if late:
            self.failures.append(f"  FAIL  {self.name}: longer than {self.limit} s")
        if code != 0 and not self.failures:
            self.failures.append(f"  FAIL  {self.name}: ended with {code}")
        self.seconds = seconds
        return "\n".join([*self.failures[-1:] * late, f"{self.name}: {self.passed} ok, {len(self.failures)} failed, {seconds:.0f} s"])

    def process(self, out):
        """(whether it took too long, its return code, seconds)"""
        start = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(HERE), "APUS_TEST_RESULT": str(self.result), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen([sys.executable, str(self.path)], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        RUNNING.append(process)
        late = False
        try:
            process.wait(self.limit)
        except subprocess.TimeoutExpired:
            late = True
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        RUNNING.remove(process)
        return late, process.returncode, time.monotonic() - start


def told_to_stop(*_):
    STOPPED.append(True)
    for process in RUNNING:
        process.send_signal(signal.SIGTERM)


def what_failed_and_where_the_time_went(ran, seconds):
    """CI keeps the last lines of a long run."""
    for scenario in ran:
        for failure in scenario.failures:
            name, *why = failure.splitlines()
            print("\n".join([name, *why[-LINES_OF_FAILURE:]]), flush=True)
    slowest = sorted(ran, key=lambda scenario: scenario.seconds, reverse=True)[:12]
    before = os.environ.get("CI_PHASES", "")
    print(f"time: {before}scenarios {seconds:.0f} s, of these {', '.join(f'{s.name} {s.seconds:.0f}' for s in slowest)}", flush=True)


def main():
    files = sorted((HERE / "scenarios").glob("*.py"))
    wanted = sys.argv[1:]
    unknown = set(wanted) - {p.stem for p in files}
    if unknown:
        raise SystemExit(f"no such scenario: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, told_to_stop)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        scenarios = [Scenario(path, pathlib.Path(directory)) for path in files if not wanted or path.stem in wanted]
        beside = [scenario for scenario in scenarios if scenario.side_by_side]
        if len(beside) > 1:
            with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as threads:
                list(threads.map(Scenario.run_beside_others, beside))
        for scenario in scenarios:
            if not STOPPED and (len(beside) == 1 or not scenario.side_by_side):
                scenario.run()
    what_failed_and_where_the_time_went(scenarios, time.monotonic() - start)
    passed, failed = sum(s.passed for s in scenarios), sum(len(s.failures) for s in scenarios)
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed or STOPPED or not passed else 0)


if __name__ == "__main__":
    main()
