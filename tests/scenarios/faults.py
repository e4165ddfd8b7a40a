"""Real processes on hosts of their own are killed, stopped and cut off under a probe that writes 1,000 times a second.

A short form of tests/process/measure.py, which makes docs/reliability.md: a few rounds of the faults that every change must survive. What
is checked is what must hold on a loaded machine too: nothing acknowledged is lost, no outcome stays unknown, the right number
of nodes is removed, commits go on, the cluster is whole again. How long gaps are is printed.
"""

import os

from lib.harness import FULL, check, scenario_main
from process import calm, histories
from process.faults import BY_KEY
from process.measure import measure_fault

LIMIT_SECONDS = (300, 3600)
ROUNDS = 20 if FULL else 2
TRANSACTIONS = 1_000_000 if FULL else 40_000
# The hour that the issue asks for is measure.py --calm 3600.
CALM_SECONDS = 600 if FULL else 10
# No answer for so long is no failover any more, whatever else the machine does.
GAP_MAX_MS = 5000
KEYS = ["kill-data", "kill-two", "stop-data", "halves", "one-way-pair", "held-one-way", "kill-sql"]


def main(t):
    for key in KEYS:
        fault = BY_KEY[key]
        with t.case(f"{fault.title}"):
            row = measure_fault(fault, ROUNDS / fault.weight, t.say)
            check(not row["failures"], "\n".join(row["failures"]))
            check(row["audits_good"], f"the audit found a difference: {row['lost']} lost")
            check(not row["strays"], f"removed although no fault touched them: {', '.join(row['strays'])}")
            check(not row["wrong_removals"], f"{row['wrong_removals']} nodes removed, {fault.removed} were right")
            check(row["gap"]["max"] < GAP_MAX_MS, f"no commit for {row['gap']['max']:.0f} ms")
            # Whoever sat on a SQL node that died cannot know; all others are told.
            check(key == "kill-sql" or not row["unknown"], f"{row['unknown']} outcomes stayed unknown")
    for key, (_, level, name, _) in histories.KINDS.items():
        with t.case(f"a history of {name} under kills is {level}"):
            row = histories.measure(key, TRANSACTIONS, t.say)
            check(not row["failures"], "\n".join(row["failures"]))
            check(row["holds"], row["verdict"])
            check(not row["unknown"], f"{row['unknown']} outcomes stayed unknown")
            check(not row["strays"], f"removed although no fault touched them: {', '.join(row['strays'])}")
    with t.case(f"{CALM_SECONDS} s on busy cores without a fault: nobody is removed"):
        row = calm.measure(CALM_SECONDS, 2 * os.cpu_count(), t.say)
        check(not row["strays"] and not row["removals"], f"removed: {row['strays']}, {row['removals']}")
        check(not row["failures"], "\n".join(row["failures"]))


if __name__ == "__main__":
    scenario_main(main)
