"""EXPLAIN FOR CONNECTION tells the plan of what another connection executes, whatever thread that belongs to, to its own user and to who may do everything."""

import contextlib
import json
import threading

import mysql.connector
import pymysql

from lib.asking import ask, error_of
from lib.cluster import Cluster
from lib.harness import check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (60, 120)
SIDE_BY_SIDE = True
SLEEP = "SLEEP(60)"


def connect(where, user="root", **options):
    host, port = where
    return pymysql.connect(host=host, port=port, user=user, autocommit=True, **options)


@contextlib.contextmanager
def running(where, root, statement, user="root", database="shop"):
    """The number of a connection that executes a statement, which is ended afterwards."""
    connection = connect(where, user, database=database)
    number = connection.thread_id()

    def execute():
        with contextlib.suppress(pymysql.MySQLError):
            ask(connection, statement)

    thread = threading.Thread(target=execute)
    thread.start()
    try:
        shown = f"SELECT info FROM information_schema.processlist WHERE id = {number} AND command = 'Query' AND info LIKE '%SLEEP%'"
        wait_until(lambda: ask(root, shown), 10, f"{statement} runs")
        yield number
    finally:
        with contextlib.suppress(pymysql.MySQLError):
            ask(root, f"KILL QUERY {number}")
        thread.join()
        connection.close()


def plans(t, where, root):
    tree = lambda number: ask(root, f"EXPLAIN FORMAT=TREE FOR CONNECTION {number}")[0][0]
    with t.case("plans of what runs"):
        for statement, word in (
            (f"SELECT {SLEEP} FROM goods WHERE id = 1", "lookup on goods"),
            (f"select /* here */ a.id, {SLEEP} FROM goods a JOIN goods b ON a.id = b.v", "join"),
            (f"INSERT INTO goods SELECT 10, {SLEEP}", "Insert into goods"),
        ):
            with running(where, root, statement) as number:
                text = tree(number)
                check(word in text, f"{statement}: {text}")
                own = statement.replace(SLEEP, "SLEEP(0)")
                with contextlib.closing(connect(where, database="shop")) as other:
                    check_equal(text.replace(SLEEP, "SLEEP(0)"), ask(other, f"EXPLAIN FORMAT=TREE {own}")[0][0], statement)
        with running(where, root, f"SELECT v, {SLEEP} FROM goods WHERE id > 1") as number:
            rows = ask(root, f"EXPLAIN FORMAT=TRADITIONAL FOR CONNECTION {number}")
            check_equal((rows[0][1], rows[0][2]), ("SIMPLE", "goods"), "a row")
            document = json.loads(ask(root, f"EXPLAIN FORMAT=JSON FOR CONNECTION {number}")[0][0])
            check_equal(document["query_type"], "select", "a document")
            check("goods" in ask(root, f"EXPLAIN FOR CONNECTION {number}")[0][0], "the usual form")
    with t.case("prepared statements"):
        connection = mysql.connector.connect(host=where[0], port=where[1], user="root", database="shop")
        cursor = connection.cursor(prepared=True)
        number = connection.connection_id

        def execute():
            with contextlib.suppress(mysql.connector.Error):
                cursor.execute(f"SELECT id, {SLEEP} FROM goods WHERE id = ?", (2,))
                cursor.fetchall()

        thread = threading.Thread(target=execute)
        thread.start()
        shown = f"SELECT info FROM information_schema.processlist WHERE id = {number} AND command = 'Execute'"
        wait_until(lambda: ask(root, shown), 10, "it is executed")
        check("goods" in tree(number), "of the binary protocol")
        ask(root, f"KILL QUERY {number}")
        thread.join()
        connection.close()
    with t.case("who executes nothing that has a plan"):
        number = root.thread_id()
        check_equal(error_of(root, f"EXPLAIN FOR CONNECTION {number}")[0], 3012, "itself")
        with contextlib.closing(connect(where)) as resting:
            # Its first statement has ended for the client before it has for the server.
            command = f"SELECT command FROM information_schema.processlist WHERE id = {resting.thread_id()}"
            wait_until(lambda: [row[0] for row in ask(root, command)] == ["Sleep"], 10, "it rests")
            check_equal(ask(root, f"EXPLAIN FOR CONNECTION {resting.thread_id()}"), [], "one that rests")
            number = resting.thread_id()
        wait_until(lambda: (error_of(root, f"EXPLAIN FOR CONNECTION {number}") or [0])[0] == 1094, 10, "one that has gone is unknown")
        with running(where, root, f"DO {SLEEP}") as number:
            check_equal(error_of(root, f"EXPLAIN FOR CONNECTION {number}")[0], 3012, "DO")
        long = f"SELECT {SLEEP} FROM goods WHERE v IN ({', '.join(map(str, range(2000)))})"
        with running(where, root, long) as number:
            check_equal(error_of(root, f"EXPLAIN FOR CONNECTION {number}")[0], 1235, "a long one")


def privileges(t, where, root):
    ask(root, "CREATE USER e_one")
    ask(root, "CREATE USER e_two")
    ask(root, "GRANT ALL ON shop.* TO e_one, e_two")
    ask(root, "GRANT PROCESS ON *.* TO e_two")
    with t.case("who may ask"), contextlib.closing(connect(where, "e_one")) as one, contextlib.closing(connect(where, "e_two")) as two:
        with running(where, root, f"SELECT {SLEEP} FROM goods", "e_one") as number:
            for connection in (one, root):
                check("goods" in ask(connection, f"EXPLAIN FORMAT=TREE FOR CONNECTION {number}")[0][0], "the same user, and root")
            check_equal(error_of(two, f"EXPLAIN FOR CONNECTION {number}"), (1045, "Access denied for user 'e_two'@'localhost' (using password: NO)"), "another")
        with running(where, root, f"SELECT {SLEEP} FROM shop.goods", database=None) as number:
            check_equal(error_of(one, f"EXPLAIN FOR CONNECTION {number}")[0], 1045, "of root")
            with contextlib.closing(connect(where, database="shop")) as other:
                check("goods" in ask(other, f"EXPLAIN FORMAT=TREE FOR CONNECTION {number}")[0][0], "without a database")
                check_equal(ask(other, "SELECT DATABASE()"), (("shop",),), "whose own stays")


def main(t):
    with Cluster(t, sql_threads=2) as cluster, contextlib.closing(connect(cluster.sql)) as root:
        ask(root, "CREATE DATABASE shop")
        ask(root, "CREATE TABLE shop.goods (id INT PRIMARY KEY, v INT, KEY (v))")
        ask(root, "INSERT INTO shop.goods VALUES (1, 1), (2, 2), (3, 3)")
        plans(t, cluster.sql, root)
        privileges(t, cluster.sql, root)


if __name__ == "__main__":
    scenario_main(main)
