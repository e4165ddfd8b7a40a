"""CREATE TABLE ... SELECT through two SQL nodes: others see the new table with all its rows or not at all, while nodes of both kinds die, and what a SQL node leaves
behind that dies meanwhile is dropped by the next such statement."""

import threading

import pymysql

from lib.cluster import Cluster
from lib.harness import BINARY, FULL, check, check_equal, run, scenario_main, wait_until

LIMIT_SECONDS = (180, 400)
SIDE_BY_SIDE = True
# As many as take some seconds to insert.
ROWS = 1_000_000 if FULL else 300_000


def connect(node):
    return pymysql.connect(host=node["host"], port=node["port"], user="root", autocommit=True)


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def unfinished(cluster):
    """The tables that are being filled, or were, as node 1 keeps its dictionary on disk."""
    file = cluster.home / "data" / "files" / "data-1" / "dictionary"
    code, text = run([BINARY, "inspect", file], ok=False)
    return [line for line in text.splitlines() if "#made#" in line] if code == 0 else []


class Maker(threading.Thread):
    """Executes one statement; what became of it is in `done`."""

    def __init__(self, connection, statement):
        super().__init__(daemon=True)
        self.connection, self.statement, self.done = connection, statement, None

    def run(self):
        try:
            with self.connection.cursor() as cursor:
                self.done = cursor.execute(self.statement)
        except pymysql.MySQLError as error:
            self.done = error


def begins(cluster, connection, statement):
    """The statement under way, its table made and not named yet."""
    maker = Maker(connection, statement)
    maker.start()
    wait_until(lambda: unfinished(cluster) or maker.done is not None, 60, "the table is being filled")
    check(maker.done is None, f"{statement} was too quick: {maker.done!r}")
    return maker


def filled(t, cluster, first, second):
    host_of = {row[0] for row in ask(second, "SHOW TABLES FROM shop")}
    with t.case("a table is not there before all its rows are"):
        maker = begins(cluster, first, "CREATE TABLE shop.copy (PRIMARY KEY (id)) SELECT * FROM shop.source")
        seen = 0
        while maker.is_alive():
            try:
                (count,), = ask(second, "SELECT COUNT(*) FROM shop.copy")
                check_equal(count, ROWS, "rows as soon as there is a table")
            except pymysql.MySQLError as error:
                check_equal(error.args[0], 1146, "the table that is being filled")
                seen += 1
            check({row[0] for row in ask(second, "SHOW TABLES FROM shop")} - host_of <= {"copy"}, "no other table is shown")
        maker.join()
        check_equal(maker.done, ROWS, "rows of the statement")
        check(seen > 0, "it was not looked at meanwhile")
        check_equal(ask(second, "SELECT COUNT(*), SUM(v) FROM shop.copy"), ask(second, "SELECT COUNT(*), SUM(v) FROM shop.source"), "rows")
        check_equal(unfinished(cluster), [], "tables that are being filled")
        ask(first, "DROP TABLE shop.copy")


def data_node_dies(t, cluster, first):
    with t.case("a data node dies meanwhile: all rows, or an error and no table"):
        maker = begins(cluster, first, "CREATE TABLE shop.copy (PRIMARY KEY (id)) SELECT * FROM shop.source")
        cluster.kill(2)
        maker.join(120)
        check(not maker.is_alive(), "the statement ends")
        tables = {row[0] for row in ask(first, "SHOW TABLES FROM shop")}
        if isinstance(maker.done, pymysql.MySQLError):
            t.say(f"it was refused: {maker.done!r}")
            check("copy" not in tables, "nothing is left of it")
        else:
            check_equal(ask(first, "SELECT COUNT(*) FROM shop.copy"), ((ROWS,),), "rows")
        cluster.restart(2)
        cluster.wait_up(2)
        ask(first, "DROP TABLE IF EXISTS shop.copy")


def sql_node_dies(t, cluster, second):
    with t.case("a SQL node dies meanwhile: what it leaves is in nobody's way, and dropped by the next"):
        process, node = cluster.more_sql()
        begins(cluster, connect(node), "CREATE TABLE shop.copy (PRIMARY KEY (id)) SELECT * FROM shop.source")
        process.kill()
        process.wait(10)
        check(unfinished(cluster), "it left a table")
        check("copy" not in {row[0] for row in ask(second, "SHOW TABLES FROM shop")}, "nobody sees it")

        def dropped():
            ask(second, "DROP TABLE IF EXISTS shop.copy")
            ask(second, "CREATE TABLE shop.copy SELECT 7 AS a")
            return not unfinished(cluster)

        wait_until(dropped, 60, "the table of the SQL node that died is dropped")
        check_equal(ask(second, "SELECT * FROM shop.copy"), ((7,),), "the table of that name")


def body(t):
    with Cluster(t, sql_nodes=2, dir=t.directory / "c" / "data") as cluster:
        first, second = (connect(node) for node in cluster.describe()["sql"])
        ask(first, "CREATE DATABASE shop")
        ask(first, "SET SESSION cte_max_recursion_depth = 1000000")
        ask(first, "CREATE TABLE shop.source (id INT PRIMARY KEY, v INT NOT NULL, w VARCHAR(20))")
        ask(first, f"INSERT INTO shop.source WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) SELECT i, i * 3, CONCAT('row ', i) FROM n")
        filled(t, cluster, first, second)
        data_node_dies(t, cluster, first)
        sql_node_dies(t, cluster, second)


if __name__ == "__main__":
    scenario_main(body)
