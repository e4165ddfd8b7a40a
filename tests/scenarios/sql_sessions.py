"""Stock clients: each connects, creates, prepares, commits, rolls back, meets errors, and gets back what it stored."""

import datetime
import decimal
import os
import shutil
import threading
import time

import mysql.connector
import pymysql

from lib.cluster import Cluster
from lib.harness import CLIENTS, check, check_equal, run, scenario_main, wait_until
from lib.mariadb import batch

LIMIT_SECONDS = (300, 300)
SIDE_BY_SIDE = True

COLUMNS = """CREATE TABLE {name} (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, n BIGINT, u BIGINT UNSIGNED, d DECIMAL(12,3),
 f DOUBLE, s VARCHAR(50), b VARBINARY(50), t TEXT, day DATE, at DATETIME, UNIQUE KEY one_s (s)) ENGINE=InnoDB"""
ROW = (-5, 2**64 - 1, decimal.Decimal("12345.678"), 1.5, "größer ✓", b"\x00\xff'\\", "long " * 100, datetime.date(2024, 2, 29),
       datetime.datetime(2024, 2, 29, 23, 59, 58))
INSERT = "INSERT INTO {name} (n, u, d, f, s, b, t, day, at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
SELECT = "SELECT n, u, d, f, s, b, t, day, at FROM {name} WHERE id = %s"


def refused(cursor, statement, number, state, arguments=None):
    """The statement must fail with this MySQL error."""
    try:
        cursor.execute(statement, arguments)
    except (pymysql.MySQLError, mysql.connector.Error) as error:
        check_equal(error.args[0], number, statement)
        if isinstance(error, mysql.connector.Error):
            check_equal(error.sqlstate, state, statement)
        return
    check(False, f"{statement} was not refused")


def documents(connection, table, prepared):
    """JSON columns by statements of text, and by prepared ones where there are some."""
    text = '{"a": 1, "b": [1, "é", null]}'
    cursor = connection.cursor()
    cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, j JSON)")
    for number, one in enumerate([cursor, *([prepared(connection)] if prepared else [])]):
        one.execute(f"INSERT INTO {table} VALUES (%s, %s), (%s, %s)", (2 * number, text, 2 * number + 1, None))
        one.execute(f"SELECT j, j->'$.a', j->>'$.b[1]', JSON_OBJECT('k', %s) FROM {table} WHERE j->'$.a' = %s AND id = %s", (7, 1, 2 * number))
        found = tuple(v.decode() if isinstance(v, (bytes, bytearray)) else v for v in one.fetchall()[0])
        check_equal(found, (text, "1", "é", '{"k": 7}'), "documents")
        one.execute(f"UPDATE {table} SET j = JSON_SET(j, '$.a', %s) WHERE id = %s", (9, 2 * number))
        one.execute(f"SELECT JSON_EXTRACT(j, '$.a') FROM {table} WHERE id = %s", (2 * number,))
        changed = one.fetchall()[0][0]
        check_equal(changed.decode() if isinstance(changed, (bytes, bytearray)) else changed, "9", "a changed document")
    refused(cursor, f"INSERT INTO {table} VALUES (99, '[1')", 3140, "22032")
    connection.commit()


def python_client(t, name, connect, prepared):
    """The same session for both Python drivers; `prepared` makes a cursor for prepared statements where there is one."""
    connection = connect()
    cursor = connection.cursor()
    table = f"t_{name}"
    with t.case(f"{name}: opens, creates, stores and reads every type"):
        cursor.execute(COLUMNS.format(name=table))
        cursor.execute(INSERT.format(name=table), ROW)
        check_equal(cursor.rowcount, 1, "affected rows")
        row_id = cursor.lastrowid
        check(row_id and row_id > 0, "no insert id")
        connection.commit()
        cursor.execute(SELECT.format(name=table), (row_id,))
        found = tuple(bytes(v) if isinstance(v, bytearray) else v for v in cursor.fetchall()[0])
        check_equal(found, ROW, "row")
    if prepared:
        with t.case(f"{name}: prepared statements"):
            statement = prepared(connection)
            for i in range(20):
                statement.execute(INSERT.format(name=table), (i, i, decimal.Decimal(i) / 8, i / 4, f"p{i}", bytes([i]), "x", ROW[7], ROW[8]))
            statement.execute(f"SELECT n, d, f, s, b, day, at FROM {table} WHERE s = %s", ("p17",))
            found = statement.fetchall()[0]
            wanted = (17, decimal.Decimal("2.125"), 4.25, "p17", b"\x11", ROW[7], ROW[8])
            check_equal(tuple(bytes(v) if isinstance(v, bytearray) else v for v in found), wanted, "row")
            statement.close()
            connection.commit()
    with t.case(f"{name}: documents"):
        documents(connection, f"d_{name}", prepared)
    with t.case(f"{name}: commit, rollback, autocommit"):
        cursor.execute(f"UPDATE {table} SET n = 100 WHERE id = %s", (row_id,))
        connection.rollback()
        cursor.execute(f"SELECT n FROM {table} WHERE id = %s", (row_id,))
        check_equal(cursor.fetchall()[0][0], -5, "after rollback")
        cursor.execute(f"UPDATE {table} SET n = n + 1 WHERE id = %s", (row_id,))
        connection.commit()
        other = connect()
        with other.cursor() as second:
            second.execute(f"SELECT n FROM {table} WHERE id = %s", (row_id,))
            check_equal(second.fetchall()[0][0], -4, "another session after commit")
        other.close()
    with t.case(f"{name}: errors have MySQL's numbers"):
        refused(cursor, f"INSERT INTO {table} (s) VALUES ('größer ✓')", 1062, "23000")
        refused(cursor, "SELECT * FROM no_such_table", 1146, "42S02")
        refused(cursor, "SELEKT 1", 1064, "42000")
        refused(cursor, f"SELECT no_such_column FROM {table}", 1054, "42S22")
        connection.rollback()
        cursor.execute("SELECT 1")
        check_equal(cursor.fetchall()[0][0], 1, "the session goes on")
    connection.close()


def lock_wait(t, connect):
    """Two sessions: a row lock is waited for; a deadlock is found and one of the two gets 1213."""
    one, two = connect(), connect()
    with t.case("two sessions: a writer waits for another's row and then sees its change"):
        a, b = one.cursor(), two.cursor()
        a.execute("CREATE TABLE locks (id INT NOT NULL PRIMARY KEY, v INT NOT NULL)")
        a.execute("INSERT INTO locks VALUES (1, 0), (2, 0)")
        one.commit()
        a.execute("UPDATE locks SET v = v + 1 WHERE id = 1")
        b.execute("SELECT v FROM locks WHERE id = 1")  # committed reads never wait
        check_equal(b.fetchall()[0][0], 0, "committed value")
        two.rollback()

        waiter = threading.Thread(target=b.execute, args=("UPDATE locks SET v = v + 1 WHERE id = 1",))
        waiter.start()
        one.commit()
        waiter.join(30)
        check(not waiter.is_alive(), "the waiting update hangs")
        two.commit()
        a.execute("SELECT v FROM locks WHERE id = 1")
        check_equal(a.fetchall()[0][0], 2, "both updates")
        one.commit()
    with t.case("two sessions: a deadlock ends with 1213 for one of them"):
        a.execute("UPDATE locks SET v = 10 WHERE id = 1")
        b.execute("UPDATE locks SET v = 20 WHERE id = 2")
        outcomes = []

        def cross(cursor, connection, row):
            try:
                cursor.execute(f"UPDATE locks SET v = v + 1 WHERE id = {row}")
                connection.commit()
                outcomes.append(0)
            except pymysql.MySQLError as error:
                connection.rollback()
                outcomes.append(error.args[0])

        threads = [threading.Thread(target=cross, args=c) for c in ((a, one, 2), (b, two, 1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        check_equal(sorted(outcomes), [0, 1213], "outcomes")
    one.close()
    two.close()


def index_under_load(t, connect):
    """A unique index is made while a transaction has written rows that are not committed: its rows are in the index, too."""
    one, two, three = connect(), connect(), connect()
    a, b, c = one.cursor(), two.cursor(), three.cursor()
    with t.case("a unique index waits for open transactions and has their rows"):
        a.execute("CREATE TABLE late (id INT NOT NULL PRIMARY KEY, v INT)")
        a.executemany("INSERT INTO late VALUES (%s, %s)", [(i, i) for i in range(300)])
        one.commit()
        a.execute("INSERT INTO late VALUES (1000, 7777), (1001, 8888)")
        maker = threading.Thread(target=b.execute, args=("CREATE UNIQUE INDEX one_v ON late (v)",))
        maker.start()
        deadline = time.monotonic() + 30
        while True:
            c.execute("SHOW INDEX FROM late")
            if any(row[2] == "one_v" for row in c.fetchall()):
                break
            check(time.monotonic() < deadline, "the index is not defined")
        c.execute("INSERT INTO late VALUES (1002, 9999)")
        three.commit()
        a.execute("DELETE FROM late WHERE id = 1001")
        one.commit()
        maker.join(60)
        check(not maker.is_alive(), "CREATE UNIQUE INDEX hangs")
        for row in ((2000, 7777), (2001, 9999), (2002, 17)):
            refused(c, f"INSERT INTO late VALUES {row}", 1062, "23000")
        c.execute("INSERT INTO late VALUES (2003, 8888)")
        three.commit()
    for connection in (one, two, three):
        connection.close()


def interrupts(t, connect):
    """KILL QUERY and max_execution_time end a statement and nothing else; KILL ends the connection."""
    one, two = connect(), connect()
    a, b = one.cursor(), two.cursor()

    def kills(statement, how, number):
        a.execute("SELECT CONNECTION_ID()")
        (victim,) = a.fetchone()
        found = []

        def wait():
            try:
                a.execute(statement)
                found.append(None)
            except pymysql.MySQLError as error:
                found.append(error.args[0])

        waiter = threading.Thread(target=wait)
        waiter.start()
        deadline = time.monotonic() + 30
        # What comes before the statement has begun means nothing, so it is said until the statement ends.
        while waiter.is_alive():
            check(time.monotonic() < deadline, f"{how} does not end {statement}")
            try:
                b.execute(f"{how} {victim}")
            except pymysql.MySQLError as error:
                check_equal(error.args[0], 1094, how)
            waiter.join(0.05)
        check(found[0] in number, f"{statement}: {found} instead of {number}")

    with t.case("KILL QUERY ends the statement, not the connection"):
        kills("SELECT SLEEP(600)", "KILL QUERY", (1317,))
        one.ping(reconnect=False)
        a.execute("SELECT 1")
        check_equal(a.fetchall(), ((1,),), "after KILL QUERY")
    with t.case("max_execution_time ends a SELECT"):
        a.execute("SET max_execution_time = 50")
        refused(a, "SELECT SLEEP(600)", 3024, "HY000")
        a.execute("SET max_execution_time = 0")
        a.execute("SELECT SLEEP(0)")
    with t.case("KILL ends the connection"):
        kills("SELECT SLEEP(600)", "KILL", (1317, 1927, 2013))
        refused(b, "KILL 4294967295", 1094, "HY000")
    two.close()


def processes(t, connect, connect_prepared):
    """The process list tells who does what, in which database, and for how long."""
    one, two = connect(), connect()
    a, b = one.cursor(), two.cursor()

    def seen(form, number):
        b.execute(form)
        return next((row for row in b.fetchall() if row[0] == number), None)

    show, full, table = "SHOW PROCESSLIST", "SHOW FULL PROCESSLIST", "SELECT * FROM information_schema.processlist ORDER BY id"
    with t.case("the process list: a connection that rests, one that runs a statement, its own"):
        for form in (show, full, table):
            row = seen(form, one.thread_id())
            check_equal((row[1], row[3], row[4], row[6], row[7]), ("root", "app", "Sleep", "", None), form)
            row = seen(form, two.thread_id())
            check_equal((row[3], row[4], row[7]), ("app", "Query", form), form)
        statement = "SELECT SLEEP(600) /* " + "x" * 5000 + " */"
        runner = threading.Thread(target=lambda: refused(a, statement, 1317, "70100"))
        runner.start()
        wait_until(lambda: seen(full, one.thread_id())[4] == "Query", 20, "the statement is seen")
        check_equal(seen(show, one.thread_id())[6:], ("executing", statement[:100]), "100 characters")
        check_equal(seen(full, one.thread_id())[7], statement[:4096], "4 KiB")
        check_equal(seen(table, one.thread_id())[7], statement[:4096], "4 KiB")
        wait_until(lambda: int(seen(show, one.thread_id())[5]) >= 2, 20, "its time passes")
        b.execute("SELECT COUNT(*), MAX(time) FROM information_schema.processlist WHERE command = 'Query' AND info LIKE 'SELECT SLEEP%'")
        count, seconds = b.fetchall()[0]
        check(count == 1 and seconds >= 2, f"{count} statements, {seconds} s")
        wait_until(lambda: b.execute(f"KILL QUERY {one.thread_id()}") is not None and not runner.is_alive(), 20, "it ends")
        wait_until(lambda: seen(show, one.thread_id())[4] == "Sleep", 20, "it rests again")
        a.execute("USE information_schema")
        check_equal(seen(show, one.thread_id())[3], "information_schema", "the database")
        one.close()
        wait_until(lambda: seen(show, one.thread_id()) is None, 20, "it is gone")
    with t.case("the process list: a prepared statement"):
        third = connect_prepared()
        number = third.connection_id
        cursor = third.cursor(prepared=True)

        def sleep():
            try:
                cursor.execute("SELECT SLEEP(%s)", (600,))
            except mysql.connector.Error as error:
                check_equal(error.errno, 1317, "KILL QUERY")

        runner = threading.Thread(target=sleep)
        runner.start()
        wait_until(lambda: seen(show, number)[4] == "Execute", 20, "the statement is seen")
        check_equal(seen(show, number)[7], "SELECT SLEEP(?)", "its text")
        wait_until(lambda: b.execute(f"KILL QUERY {number}") is not None and not runner.is_alive(), 20, "it ends")
        third.close()
    two.close()


def status_of(cursor, scope=""):
    cursor.execute(f"SHOW {scope} STATUS")
    return dict(cursor.fetchall())


def counted(cursor, scope, work):
    """By how much the counters of SHOW STATUS grow with this."""
    before = status_of(cursor, scope)
    work()
    after = status_of(cursor, scope)
    return {name: int(after[name]) - int(before[name]) for name in after if name.startswith("Com_") or name in ("Questions", "Connections")}


def counters(t, connect, host, port):
    one, two = connect(), connect()
    a, b = one.cursor(), two.cursor()
    a.execute("CREATE TABLE tallied (id INT PRIMARY KEY, v INT)")

    def work():
        for statement in (
            "BEGIN", "INSERT INTO tallied VALUES (1, 1), (2, 2)", "COMMIT", "START TRANSACTION READ ONLY", "SELECT 1", "SELECT COUNT(*) FROM tallied",
            "ROLLBACK", "UPDATE tallied SET v = 3", "UPDATE tallied c, tallied d SET c.v = 4 WHERE c.id = d.id", "REPLACE INTO tallied VALUES (2, 5)",
            "DELETE FROM tallied WHERE id = 1", "DELETE c FROM tallied c WHERE c.id = 9", "SET @x = 1", "SELECT 1 INTO @x",
        ):
            a.execute(statement)

    with t.case("SHOW STATUS counts the statements of the session, and of all"):
        wanted = {"Com_begin": 2, "Com_commit": 1, "Com_rollback": 1, "Com_insert": 1, "Com_replace": 1, "Com_update": 2, "Com_delete": 2,
                  "Com_select": 3, "Com_set_option": 1, "Questions": 15}
        found = counted(a, "SESSION", work)
        check_equal({name: found[name] for name in wanted}, wanted, "counters of the session")
        a.execute("DELETE FROM tallied")
        found = counted(b, "GLOBAL", work)
        check(all(found[name] >= wanted[name] for name in wanted), f"of all: {found}")
        found = counted(b, "LOCAL", lambda: a.execute("DELETE FROM tallied"))
        check_equal((found["Com_delete"], found["Questions"]), (0, 1), "of a session that does nothing else")
    with t.case("SHOW STATUS knows the connections and the time"):
        found = status_of(a)
        now, most, ever = (int(found[name]) for name in ("Threads_connected", "Max_used_connections", "Connections"))
        check(2 <= now <= most <= ever, f"connected {now}, most {most}, ever {ever}")
        check(1 <= int(found["Threads_running"]) <= now, found["Threads_running"])
        check(int(found["Queries"]) >= int(found["Questions"]) > 0, f"{found['Queries']} of all")
        check_equal(counted(b, "GLOBAL", lambda: connect().close())["Connections"], 1, "connections more")
        wait_until(lambda: int(status_of(a)["Uptime"]) > int(found["Uptime"]), 20, "time passes")
    with t.case("mysqladmin reads it"):
        for verb, wanted in (("ping", "alive"), ("status", "Uptime: "), ("version", "Server version"), ("extended-status", "Com_select"),
                             ("processlist", "root"), ("variables", "max_error_count")):
            code, text = run(["mysqladmin", f"-h{host}", f"-P{port}", "-uroot", verb], ok=False)
            check(code == 0 and wanted in text, f"mysqladmin {verb}: {text}")
    one.close()
    two.close()


def numbers_of_two_nodes(t, cluster):
    """A value that is put into the range another SQL node has reserved is found there and passed over, by every form of INSERT."""
    nodes = [(node["host"], node["port"]) for node in cluster.describe()["sql"]]
    first, second = (pymysql.connect(host=host, port=port, user="root", database="app", autocommit=True) for host, port in nodes)
    a, b = first.cursor(), second.cursor()
    with t.case("AUTO_INCREMENT: ids of one statement are consecutive, explicit ones of another node are passed over"):
        a.execute("CREATE TABLE counted (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20))")
        a.execute("INSERT INTO counted (v) VALUES ('a')")
        taken = []
        for form in ("INSERT INTO counted (v) VALUES ('a'), ('b')", "INSERT IGNORE INTO counted (v) VALUES ('a')",
                     "REPLACE INTO counted (v) VALUES ('a')", "INSERT INTO counted (v) VALUES ('a') ON DUPLICATE KEY UPDATE v = 'lost'"):
            a.execute("SELECT MAX(id) + 1 FROM counted")
            (next_id,) = a.fetchone()
            b.execute("INSERT INTO counted VALUES (%s, 'theirs')", (next_id,))
            taken.append(next_id)
            a.execute(form)
            check(a.lastrowid > next_id, f"{form}: id {a.lastrowid} behind {next_id}")
        a.executemany("INSERT INTO counted (v) VALUES (%s)", [(str(i),) for i in range(700)])
        a.execute("SELECT MIN(id), MAX(id), COUNT(*) FROM counted WHERE id >= %s", (a.lastrowid,))
        low, high, count = a.fetchone()
        check_equal(high - low + 1, count, "a gap in one statement")
        check_equal(count, 700, "rows of the statement")
        b.execute("SELECT id FROM counted WHERE v = 'theirs' ORDER BY id")
        check_equal([row[0] for row in b.fetchall()], taken, "the other node's rows")
    first.close()
    second.close()


def main(t):
    with Cluster(t, sql_nodes=2) as cluster:
        host, port = cluster.sql
        with t.case("mariadb client: an ordinary session"):
            code, text = batch("SELECT VERSION(); CREATE DATABASE app; USE app; CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10)); "
                               "INSERT INTO t VALUES (1, 'x'); SELECT * FROM t; SHOW TABLES;\n\\s", host, port)
            check(code == 0 and "ERROR" not in text, text)
        python_client(t, "PyMySQL", lambda: pymysql.connect(host=host, port=port, user="root", database="app", charset="utf8mb4"), None)
        python_client(
            t, "mysql_connector",
            lambda: mysql.connector.connect(host=host, port=port, user="root", database="app", use_pure=True, ssl_disabled=True),
            lambda connection: connection.cursor(prepared=True))
        lock_wait(t, lambda: pymysql.connect(host=host, port=port, user="root", database="app"))
        numbers_of_two_nodes(t, cluster)
        processes(t, lambda: pymysql.connect(host=host, port=port, user="root", database="app"),
                  lambda: mysql.connector.connect(host=host, port=port, user="root", database="app", use_pure=True))
        counters(t, lambda: pymysql.connect(host=host, port=port, user="root", database="app", autocommit=True), host, port)
        interrupts(t, lambda: pymysql.connect(host=host, port=port, user="root", database="app"))
        index_under_load(t, lambda: pymysql.connect(host=host, port=port, user="root", database="app"))
        where = {**os.environ, "APUS_HOST": host, "APUS_PORT": str(port), "APUS_DB": "app"}
        _, text = run([CLIENTS / "go-client"], seconds=60, env=where, ok=False)
        t.cases_of(text, "go-sql-driver")
        classes = (CLIENTS / "java-classpath").read_text().strip()
        _, text = run([shutil.which("java") or "java", "-cp", f"{CLIENTS / 'java'}:{classes}", "apus.Session"], seconds=60,
                      env=where, ok=False)
        t.cases_of(text, "Connector/J")


if __name__ == "__main__":
    scenario_main(main)
