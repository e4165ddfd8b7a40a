"""Histograms on two SQL nodes: made on one, known to the other, which plans by them; they are there after a start from the disks."""

import json

from lib.asking import ask, connect
from lib.cluster import Cluster
from lib.harness import check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (120, 120)
SIDE_BY_SIDE = True

ROWS = 2000
SHOWN = "SELECT table_name, column_name, histogram->'$.buckets' FROM information_schema.column_statistics WHERE schema_name = 'shop' ORDER BY 1, 2"
# Of each hundred rows one is 'rare', and no index says so.
RARE = "SELECT id FROM item WHERE kind = 'rare'"


def expected(connection, statement):
    """Rows that a plan expects, to three digits."""
    (text,), = ask(connection, f"EXPLAIN FORMAT=JSON {statement}")
    return round(json.loads(text)["query_plan"]["estimated_rows"], 3)


def scenario(t):
    directory = t.directory / "data"
    with Cluster(t, sql_nodes=2, dir=directory) as cluster:
        one, two = connect(cluster, 0), connect(cluster, 1)
        ask(one, "CREATE DATABASE shop")
        one.select_db("shop")
        ask(one, "CREATE TABLE item (id INT PRIMARY KEY, kind VARCHAR(10))")
        rows = [f"({number}, '{'rare' if number % 100 == 0 else 'common'}')" for number in range(ROWS)]
        ask(one, f"INSERT INTO item VALUES {', '.join(rows)}")
        two.select_db("shop")
        with t.case("a histogram that one SQL node makes is known to the other, which plans by it"):
            said = ask(one, "ANALYZE TABLE item UPDATE HISTOGRAM ON kind")
            check_equal(said[0][3], "Histogram statistics created for column 'kind'.", "ANALYZE TABLE")
            before = ask(two, SHOWN)
            check_equal(len(before), 1, "histograms on the other node")
            check_equal(before, ask(one, SHOWN), "histograms")
            check_equal(expected(two, RARE), ROWS / 100, "rows expected")
        with t.case("a change on the other one counts on both"):
            ask(two, "UPDATE item SET kind = 'rare' WHERE id % 2 = 0")
            ask(two, "ANALYZE TABLE item UPDATE HISTOGRAM ON kind")
            check(ask(one, SHOWN) != before, "the histogram is that of before")
            check_equal(expected(one, RARE), ROWS / 2, "rows expected")
        with t.case("AUTO UPDATE: it is made anew by itself when rows have come"):
            ask(one, "CREATE TABLE grows (id INT PRIMARY KEY, kind VARCHAR(10))")
            ask(one, "ANALYZE TABLE grows UPDATE HISTOGRAM ON kind AUTO UPDATE")
            shown = "SELECT histogram->'$.buckets' FROM information_schema.column_statistics WHERE table_name = 'grows'"
            check_equal(json.loads(ask(one, shown)[0][0]), [], "buckets of an empty table")
            ask(one, "INSERT INTO grows SELECT * FROM item")
            wait_until(lambda: len(json.loads(ask(two, shown)[0][0])) == 2, 40, "the histogram of the rows")
            check_equal(expected(two, "SELECT id FROM grows WHERE kind = 'rare'"), ROWS / 2, "rows expected")
            ask(one, "DROP TABLE grows")
        after = ask(one, SHOWN)
    with t.case("a start from the disks has it"), Cluster(t, name="again", sql_nodes=2, dir=directory) as cluster:
        connection = connect(cluster, 1, "shop")
        check_equal(ask(connection, SHOWN), after, "histograms")
        check_equal(expected(connection, RARE), ROWS / 2, "rows expected")
        ask(connection, "DROP TABLE item")
        check_equal(ask(connection, SHOWN), (), "histograms of a table that is gone")


if __name__ == "__main__":
    scenario_main(scenario)
