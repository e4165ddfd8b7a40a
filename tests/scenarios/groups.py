"""Node groups are cut off from each other for longer than a silence is waited out: nobody goes on, and when the network is whole all do, with every row.

The row `groups` of tests/process/faults.py, on processes with network namespaces of their own (root).
"""

from lib.harness import FULL, check, scenario_main
from process.faults import BY_KEY
from process.measure import measure_fault

LIMIT_SECONDS = (240, 1200)
ROUNDS = 10 if FULL else 2


def main(t):
    fault = BY_KEY["groups"]
    with t.case(fault.title):
        row = measure_fault(fault, ROUNDS / fault.weight, t.say)
        check(not row["failures"], "\n".join(row["failures"]))
        check(row["audits_good"], f"the audit found a difference: {row['lost']} lost")
        check(not row["strays"], f"removed although no fault touched them: {', '.join(row['strays'])}")
        t.say(f"{len(row['wrong_removals'])} rounds in which another number of nodes gave way than two, {row['unknown']} outcomes stayed unknown")


if __name__ == "__main__":
    scenario_main(main)
