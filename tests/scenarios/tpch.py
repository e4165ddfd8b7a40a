"""`apus bench tpch` at scale 0.01: all 22 queries answer as MySQL 9.7.4 did, and a wrong answer is found."""

from lib.cluster import Cluster
from lib.harness import check, check_equal, scenario_main
from lib.mariadb import batch

LIMIT_SECONDS = (180, 300)


def main(t):
    with Cluster(t) as cluster:
        with t.case("all 22 queries answer as MySQL does"):
            code, text = cluster.apus("bench", "tpch", "--check", "--limit=20", seconds=150, ok=False)
            t.say(text.rstrip().splitlines()[-1])
            check(code == 0 and text.count(", right") == 22, f"apus bench tpch ended with {code}:\n{text}")
        host, port = cluster.sql
        with t.case("ANALYZE TABLE answers as MySQL does, and EXPLAIN says how many rows there are"):
            _, text = batch("ANALYZE TABLE lineitem, nosuch", host=host, port=port, database="apus_tpch")
            wanted = ["Table\tOp\tMsg_type\tMsg_text", "apus_tpch.lineitem\tanalyze\tstatus\tOK",
                      "apus_tpch.nosuch\tanalyze\tError\tTable 'apus_tpch.nosuch' doesn't exist", "apus_tpch.nosuch\tanalyze\tstatus\tOperation failed"]
            check_equal(text.splitlines(), wanted, "ANALYZE TABLE")
            _, text = batch("SELECT COUNT(*) FROM lineitem; EXPLAIN FORMAT=TRADITIONAL SELECT l_comment FROM lineitem, supplier WHERE l_suppkey = s_suppkey",
                            host=host, port=port, database="apus_tpch")
            count, steps = text.splitlines()[1], [line.split("\t") for line in text.splitlines()[3:]]
            of_each = str(round(int(count) / 100))  # an index leads from a supplier to its lines
            check_equal([(step[2], step[9]) for step in steps], [("supplier", "100"), ("lineitem", of_each)], "tables and rows of EXPLAIN")
        with t.case("a wrong answer is found"):
            batch("UPDATE lineitem SET l_tax = l_tax + 0.01 WHERE l_orderkey = 1", host=host, port=port, database="apus_tpch")
            code, text = cluster.apus("bench", "tpch", "--phases=run", "--queries=1", "--check", seconds=60, ok=False)
            check(code != 0 and "WRONG" in text, f"apus bench tpch ended with {code}:\n{text}")


if __name__ == "__main__":
    scenario_main(main)
