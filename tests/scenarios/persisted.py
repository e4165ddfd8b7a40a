"""SET PERSIST over several SQL nodes: in force at once where it is said, shown by all, and what SQL nodes begin with."""

import pymysql

from lib.cluster import Cluster
from lib.harness import check_equal, scenario_main, wait_until

LIMIT_SECONDS = (60, 60)
SIDE_BY_SIDE = True
SHOWN = "SELECT GROUP_CONCAT(variable_name, '=', variable_value ORDER BY variable_name) FROM performance_schema.persisted_variables"


def connect(node):
    return pymysql.connect(host=node["host"], port=node["port"], user="root", autocommit=True)


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
        return row[0] if row and len(row) == 1 else row


def body(t):
    with Cluster(t, sql_nodes=2) as cluster:
        first, second = (connect(node) for node in cluster.describe()["sql"])
        with t.case("a value is in force where it is set, and shown by the other SQL node"):
            ask(first, "SET PERSIST max_execution_time = 12345, PERSIST_ONLY sql_mode = 'ANSI_QUOTES', PERSIST local_infile = ON")
            check_equal(ask(first, "SELECT @@global.max_execution_time, @@global.sql_mode LIKE '%ANSI%', @@global.local_infile"), (12345, 0, 1), "there")
            check_equal(ask(second, "SELECT @@global.max_execution_time, @@global.local_infile"), (0, 0), "not at the other one")
            kept = "local_infile=ON,max_execution_time=12345,sql_mode=ANSI_QUOTES"
            wait_until(lambda: ask(second, SHOWN) == kept, 5, "the other one shows it")
        with t.case("a SQL node that starts begins with it"):
            _, node = cluster.more_sql()
            new = connect(node)
            check_equal(ask(new, "SELECT @@max_execution_time, @@sql_mode, @@global.local_infile"), (12345, "ANSI_QUOTES", 1), "the values")
            check_equal(ask(new, SHOWN), kept, "what is shown")
        with t.case("RESET PERSIST takes values out; what is in force stays"):
            ask(second, "RESET PERSIST sql_mode")
            ask(new, "RESET PERSIST IF EXISTS local_infile")
            _, node = cluster.more_sql("newer")
            newer = connect(node)
            check_equal(ask(newer, "SELECT @@max_execution_time, @@sql_mode LIKE '%STRICT%', @@global.local_infile"), (12345, 1, 0), "of a SQL node that starts")
            check_equal(ask(new, "SELECT @@sql_mode, @@global.local_infile"), ("ANSI_QUOTES", 1), "of one that runs")


if __name__ == "__main__":
    scenario_main(body)
