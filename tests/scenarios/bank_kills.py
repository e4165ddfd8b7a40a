"""`apus bench bank` while data nodes are killed: sums exact after each kill, no acknowledged transfer missing."""

from lib.cluster import Cluster
from lib.harness import FULL, check, scenario_main

LIMIT_SECONDS = (300, 1200)
KILLS = 20 if FULL else 5


def main(t):
    with Cluster(t) as cluster:
        with t.case(f"bank over {KILLS} kills"):
            code, text = cluster.apus("bench", "bank", f"--kills={KILLS}", seconds=LIMIT_SECONDS[FULL] - 30, ok=False)
            for line in text.rstrip().splitlines()[-6:]:
                t.say(line)
            check(code == 0, f"apus bench bank ended with {code}:\n{text[-1500:]}\n{cluster.node_logs() if code else ''}")


if __name__ == "__main__":
    scenario_main(main)
