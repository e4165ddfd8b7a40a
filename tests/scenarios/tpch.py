"""`apus bench tpch` at scale 0.01: all 22 queries answer as MySQL 9.7.4 did, and a wrong answer is found."""

from lib.cluster import Cluster
from lib.harness import check, scenario_main
from lib.mariadb import batch

LIMIT_SECONDS = (180, 300)


def main(t):
    with Cluster(t) as cluster:
        with t.case("all 22 queries answer as MySQL does"):
            code, text = cluster.apus("bench", "tpch", "--check", "--limit=20", seconds=150, ok=False)
            t.say(text.rstrip().splitlines()[-1])
            check(code == 0 and text.count(", right") == 22, f"apus bench tpch ended with {code}:\n{text}")
        with t.case("a wrong answer is found"):
            host, port = cluster.sql
            batch("UPDATE lineitem SET l_tax = l_tax + 0.01 WHERE l_orderkey = 1", host=host, port=port, database="apus_tpch")
            code, text = cluster.apus("bench", "tpch", "--phases=run", "--queries=1", "--check", seconds=60, ok=False)
            check(code != 0 and "WRONG" in text, f"apus bench tpch ended with {code}:\n{text}")


if __name__ == "__main__":
    scenario_main(main)
