"""The simulated cluster: seeds with faults, and the same seed twice.

Each seed draws a cluster, a network, a workload and a schedule of crashes, partitions, pauses and the like, and must live through it
with nothing lost and everything running again. A failing seed is printed with the line that repeats it.
"""

import os
import re
import time

from lib.harness import BINARY, FULL, check, run, scenario_main

LIMIT_SECONDS = (1800, 7200)
# 300 take some four minutes on two slow cores.
SEEDS, TWICE = (20_000, 1_000) if FULL else (300, 30)
# CI runs the same seeds on every commit, each release another range than the one before (0.1: 1). The long form runs seeds that
# nobody has run before; where they begin is printed, and SIM_FROM repeats them.
CI_FROM = 1_000_000
FROM = int(os.environ.get("SIM_FROM", int(time.time()) * 1_000_000 if FULL else CI_FROM))


def simulate(t, *arguments):
    limit = LIMIT_SECONDS[FULL]
    code, text = run([BINARY, "sim", "--dir", t.directory, "--from", FROM, *arguments], seconds=limit, ok=False)
    for line in text.splitlines():
        if not re.match(r"\d+ s: ", line):
            t.say(line[:300])
    check(code == 0, f"apus sim ended with {code}:\n{text[-4000:]}")
    return text


def main(t):
    t.say(f"first seed: {FROM}")
    with t.case(f"{SEEDS} seeds"):
        text = simulate(t, "--seeds", SEEDS)
        check(f"{SEEDS} run, 0 failed" in text, "not all seeds were run")
        commits = int(re.search(r"commits +(\d+)", text)[1])
        check(commits > SEEDS, f"only {commits} transactions in {SEEDS} seeds")
        judged, undecided = map(int, re.search(r"histories +(\d+) judged, (\d+) undecided", text).groups())
        check(judged > SEEDS, f"only {judged} histories in {SEEDS} seeds")
        check(undecided * 100 <= judged, f"{undecided} histories are undecided")
    with t.case(f"{TWICE} seeds twice: equal hashes"):
        text = simulate(t, "--seeds", TWICE, "--twice")
        check(f"{TWICE} run, 0 failed" in text, "not all seeds were run")


if __name__ == "__main__":
    scenario_main(main)
