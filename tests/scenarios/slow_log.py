"""The slow query log as tools read it: its file by MySQL's own mysqldumpslow, its table, what becomes of entries that cannot be written, and statements by their normal form over several threads."""

import pathlib
import subprocess

import pymysql

from lib import mysql
from lib.cluster import Cluster
from lib.harness import check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (60, 60)
SIDE_BY_SIDE = True
KEPT = 1000  # crates/sql/src/monitor/slow.rs, KEPT_MAX


def connect(node, **options):
    return pymysql.connect(host=node["host"], port=node["port"], user="root", autocommit=True, **options)


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def status(connection, name):
    return int(ask(connection, f"SHOW GLOBAL STATUS LIKE '{name}'")[0][1])


def files(t, c):
    path = pathlib.Path(ask(c, "SELECT @@slow_query_log_file")[0][0])
    with t.case("slow statements are in the file, as mysqldumpslow reads it, and passwords are not"):
        ask(c, "SET GLOBAL slow_query_log = ON")
        ask(c, "SET long_query_time = 0")
        for n in range(3):
            ask(c, f"SELECT b FROM shop.t WHERE a = {n}")
        ask(c, "SELECT /* ünïcode */ a FROM shop.t ORDER BY b")
        ask(c, "CREATE USER u IDENTIFIED BY 'hidden'")
        ask(c, "SET long_query_time = 10")
        wait_until(lambda: path.exists() and "CREATE" in path.read_text(), 10, "the file")
        text = path.read_text()
        check("hidden" not in text and "ünïcode" in text, text)
        check(text.count("# Query_time: ") >= 5 and text.startswith("/apus, Version"), text)
        dumped = subprocess.run(["perl", mysql.FOLDER / "usr/bin/mysqldumpslow", "-s", "c", path], capture_output=True, text=True, check=True)
        check("Count: 3 " in dumped.stdout and "SELECT b FROM shop.t WHERE a = N" in dumped.stdout, dumped.stdout)
    with t.case("a file that was moved away is begun anew"):
        path.rename(path.with_suffix(".old"))
        ask(c, "SET long_query_time = 0")
        ask(c, "SET long_query_time = 10")
        wait_until(lambda: path.exists() and "long_query_time" in path.read_text(), 10, "a new file")
    with t.case("what no file takes is counted, and holds nobody up"):
        path.unlink()
        path.mkdir()
        ask(c, "SET long_query_time = 0")
        ask(c, "SELECT 1")
        ask(c, "SET long_query_time = 10")
        wait_until(lambda: status(c, "Apus_slow_log_dropped") >= 2, 10, "entries that are lost")
        path.rmdir()


def table(t, c):
    with t.case("the table has the last entries"):
        ask(c, "SET GLOBAL log_output = 'TABLE'")
        ask(c, "SET long_query_time = 0")
        for n in range(KEPT + 20):
            ask(c, f"SELECT {n}")
        ask(c, "SET long_query_time = 10")
        check_equal(ask(c, "SELECT COUNT(*), MIN(thread_id) = MAX(thread_id) FROM mysql.slow_log"), ((KEPT, 1),), "entries")
        last = ask(c, f"SELECT sql_text, user_host, rows_sent, db FROM mysql.slow_log WHERE sql_text = 'SELECT {KEPT + 19}'")
        check_equal(last, ((f"SELECT {KEPT + 19}".encode(), "root[root] @ localhost []", 1, ""),), "the last one")
        ask(c, "SET GLOBAL min_examined_row_limit = 3")
    with t.case("statements without an index are there when that is wanted, and those that looked at few rows are not"):
        ask(c, "TRUNCATE mysql.slow_log")
        ask(c, "SET GLOBAL log_queries_not_using_indexes = ON")
        ask(c, "SET min_examined_row_limit = 3")
        ask(c, "SELECT COUNT(c) FROM shop.t WHERE c + 1 > 0")
        ask(c, "SELECT b FROM shop.t WHERE a = 1")
        ask(c, "SET long_query_time = 0")
        ask(c, "SELECT b FROM shop.t WHERE a = 2")
        ask(c, "SET long_query_time = 10")
        found = ask(c, "SELECT sql_text, rows_examined FROM mysql.slow_log WHERE sql_text LIKE '%shop.t%'")
        check_equal(found, ((b"SELECT COUNT(c) FROM shop.t WHERE c + 1 > 0", 5),), "entries")


def digests(t, nodes):
    connections = [connect(nodes[0], database="shop") for _ in range(6)]
    summary = "SELECT COUNT_STAR, SUM_ROWS_SENT, SUM_ROWS_EXAMINED FROM performance_schema.events_statements_summary_by_digest"
    of_form = f"{summary} WHERE DIGEST_TEXT = 'SELECT `c` FROM `t` WHERE `a` = ?'"
    with t.case("threads are added up, prepared statements and texts together"):
        ask(connections[0], "TRUNCATE performance_schema.events_statements_summary_by_digest")
        for c in connections:
            for n in range(10):
                ask(c, f"SELECT c FROM t WHERE a = {n}")
            ask(c, "PREPARE s FROM 'SELECT c FROM t WHERE a = ?'")
            ask(c, "SET @a = 1")
            ask(c, "EXECUTE s USING @a")
        check_equal(ask(connections[0], of_form), ((66, 36, 36),), "statements")
    with t.case("so many normal forms are kept, and none when nobody wants them"):
        ask(connections[0], "SET GLOBAL performance_schema_digests_size = 20")
        for n in range(40):
            ask(connections[0], f"SELECT c AS n{n} FROM t")
        check(ask(connections[0], f"{summary} WHERE DIGEST IS NULL")[0][0] > 0, "no row for the others")
        ask(connections[0], "SET GLOBAL performance_schema_digests_size = 0")
        before = ask(connections[0], of_form)
        ask(connections[0], "SELECT c FROM t WHERE a = 1")
        check_equal(ask(connections[0], of_form), before, "nothing is counted")


def body(t):
    problem = mysql.get()
    check(not problem, problem)
    with Cluster(t, sql_threads=2) as cluster:
        nodes = cluster.describe()["sql"]
        c = connect(nodes[0])
        ask(c, "CREATE DATABASE shop")
        ask(c, "CREATE TABLE shop.t (a INT PRIMARY KEY, b INT, c INT, KEY (b))")
        ask(c, "INSERT INTO shop.t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5)")
        files(t, c)
        table(t, c)
        digests(t, nodes)


if __name__ == "__main__":
    scenario_main(body)
