"""REPEATABLE READ: a transaction sees one moment of the whole database and its own changes, while others transfer and nodes die."""

import random
import threading
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, scenario_main

LIMIT_SECONDS = (180, 600)
ACCOUNTS = 60
SECONDS = 60 if FULL else 8
REPEATABLE = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
RETRY = (1213, 1205, 1297, 1180, 2013, 2006)


class Tellers:
    """Move money between accounts of two tables until stopped."""

    def __init__(self, connect, count):
        self.connect, self.stop, self.transfers, self.errors = connect, threading.Event(), 0, []
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def run(self, seed):
        rng, connection = random.Random(seed), None
        while not self.stop.is_set():
            try:
                connection = connection or self.connect()
                cursor = connection.cursor()
                cursor.execute("BEGIN")
                amount = rng.randrange(1, 50)
                cursor.execute("UPDATE a SET n = n - %s WHERE id = %s", (amount, rng.randrange(ACCOUNTS)))
                cursor.execute("UPDATE b SET n = n + %s WHERE id = %s", (amount, rng.randrange(ACCOUNTS)))
                if rng.random() < 0.2:
                    # A row goes and comes back with another k.
                    row = rng.randrange(ACCOUNTS)
                    cursor.execute("SELECT n FROM b WHERE id = %s FOR UPDATE", (row,))
                    n = cursor.fetchone()[0]
                    cursor.execute("DELETE FROM b WHERE id = %s", (row,))
                    cursor.execute("INSERT INTO b VALUES (%s, %s, %s, %s)", (row, n, rng.randrange(10), row))
                cursor.execute("COMMIT")
                self.transfers += 1
            except pymysql.MySQLError as error:
                if error.args[0] not in RETRY:
                    self.errors.append(error)
                    return
                try:
                    connection.rollback()
                except pymysql.MySQLError:
                    connection = None


def one(cursor, statement, *arguments):
    cursor.execute(statement, arguments)
    return cursor.fetchone()[0]


def whole(cursor):
    """The sums by every way to read: by primary key, by range, by an ordered and a unique index, beside the data and here."""
    pushed = one(cursor, "SELECT SUM(n) FROM a") + one(cursor, "SELECT SUM(n) FROM b")
    keys = ", ".join(str(i) for i in range(ACCOUNTS))
    sums = [pushed]
    for a, b in [("id", "id"), ("u", "u"), ("k", "k")]:
        total = 0
        for table, column in (("a", a), ("b", b)):
            where = "k >= 0" if column == "k" else f"{column} IN ({keys})"
            cursor.execute(f"SELECT n FROM {table} WHERE {where}")
            rows = cursor.fetchall()
            check_equal(len(rows), ACCOUNTS, f"rows of {table} by {column}")
            total += sum(row[0] for row in rows)
        sums.append(total)
    return sums


def main(t):
    with Cluster(t) as cluster:
        host, port = cluster.sql

        def connect(database="snap"):
            return pymysql.connect(host=host, port=port, user="root", database=database, autocommit=True)

        setup = connect(None).cursor()
        setup.execute("CREATE DATABASE snap")
        for table in ("a", "b"):
            setup.execute(f"CREATE TABLE snap.{table} (id INT PRIMARY KEY, n BIGINT NOT NULL, k INT NOT NULL, u INT NOT NULL, KEY (k), UNIQUE KEY (u))")
            values = ", ".join(f"({i}, 1000, {i % 10}, {i})" for i in range(ACCOUNTS))
            setup.execute(f"INSERT INTO snap.{table} VALUES {values}")
        total = 2000 * ACCOUNTS

        with t.case("a transaction reads one moment and its own changes in front of it"):
            reader, writer = connect(), connect()
            r, w = reader.cursor(), writer.cursor()
            r.execute(REPEATABLE)
            check_equal(one(r, "SELECT @@transaction_isolation"), "REPEATABLE-READ", "level")
            w.execute("UPDATE a SET n = n + 1 WHERE id = 1")
            r.execute("BEGIN")
            check_equal(one(r, "SELECT n FROM a WHERE id = 1"), 1001, "what was committed just before is seen")
            w.execute("UPDATE a SET n = n + 10 WHERE id = 1")
            w.execute("UPDATE b SET k = 99 WHERE id = 2")
            w.execute("DELETE FROM b WHERE id = 3")
            w.execute("INSERT INTO b VALUES (1000, 5, 99, 1000)")
            check_equal(one(r, "SELECT n FROM a WHERE id = 1"), 1001, "the same moment")
            check_equal(one(r, "SELECT COUNT(*) FROM b WHERE k = 99"), 0, "an index of the past")
            check_equal(one(r, "SELECT COUNT(*) FROM b WHERE k = 2"), ACCOUNTS // 10, "an index of the past")
            check_equal(one(r, "SELECT COUNT(*) FROM b"), ACCOUNTS, "no phantom, nothing missing")
            check_equal(one(r, "SELECT n FROM b WHERE u = 3"), 1000, "a deleted row by its unique key")
            check_equal(one(r, "SELECT n FROM a WHERE id = 1 FOR UPDATE"), 1011, "locking reads see now")
            r.execute("UPDATE a SET n = n + 100 WHERE id = 1")
            r.execute("INSERT INTO a VALUES (2000, 7, 77, 2000)")
            check_equal(one(r, "SELECT n FROM a WHERE id = 1"), 1111, "own changes")
            check_equal(one(r, "SELECT COUNT(*) FROM a WHERE k = 77"), 1, "own rows by an index")
            check_equal(one(r, "SELECT COUNT(*) FROM b"), ACCOUNTS, "still the same moment")
            r.execute("ROLLBACK")
            check_equal(one(r, "SELECT n FROM a WHERE id = 1"), 1011, "afterwards it is now")
            check_equal(one(r, "SELECT COUNT(*) FROM b WHERE k = 99"), 2, "afterwards it is now")
            for statement in ("UPDATE a SET n = 1000 WHERE id = 1", "UPDATE b SET k = 2 WHERE id = 2", "DELETE FROM b WHERE id = 1000", "INSERT INTO b VALUES (3, 1000, 3, 3)"):
                w.execute(statement)

        with t.case("levels: of the next transaction, of the session, and a consistent snapshot"):
            r.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            for begin, repeats in [("BEGIN", False), ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN", True), ("BEGIN", False),
                                   ("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY", True)]:
                for statement in begin.split("; "):
                    r.execute(statement)
                first = one(r, "SELECT n FROM a WHERE id = 5")
                w.execute("UPDATE a SET n = n + 1 WHERE id = 5")
                check_equal(one(r, "SELECT n FROM a WHERE id = 5"), first if repeats else first + 1, begin)
                r.execute("COMMIT")
            w.execute("UPDATE a SET n = 1000 WHERE id = 5")
            r.execute("BEGIN")
            try:
                r.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                check(False, "the level of a transaction changed while it ran")
            except pymysql.MySQLError as error:
                check_equal(error.args[0], 1568, "error")
            r.execute("ROLLBACK")

        with t.case("a table younger than the snapshot is refused, and so is the transaction"):
            r.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            w.execute("CREATE TABLE young (id INT PRIMARY KEY)")
            w.execute("INSERT INTO young VALUES (1)")
            try:
                r.execute("SELECT * FROM young")
                check(False, "a table that was not there was read")
            except pymysql.MySQLError as error:
                check_equal(error.args[0], 1213, "error")
            check_equal(one(r, "SELECT COUNT(*) FROM young"), 1, "afterwards")

        def audit(seconds, errors_allowed=()):
            """Snapshots during traffic: whole, and the same again a moment later."""
            auditor, rounds, refused, end = connect(), 0, 0, time.monotonic() + seconds
            cursor = auditor.cursor()
            cursor.execute(REPEATABLE)
            while time.monotonic() < end:
                try:
                    cursor.execute("BEGIN")
                    first = whole(cursor)
                    check_equal(first, [total] * 4, "sums")
                    cursor.execute("SELECT id, n, k FROM b ORDER BY id")
                    rows = cursor.fetchall()
                    time.sleep(random.random() * 0.1)
                    cursor.execute("SELECT id, n, k FROM b ORDER BY k, id")
                    check_equal(sorted(cursor.fetchall()), sorted(rows), "the second reading")
                    cursor.execute("COMMIT")
                    rounds += 1
                except pymysql.MySQLError as error:
                    check(error.args[0] in errors_allowed, f"refused: {error}")
                    refused += 1
                    cursor.execute("ROLLBACK")
            return rounds, refused

        with t.case("money is neither made nor lost in any snapshot"):
            with Tellers(connect, 4) as tellers:
                rounds, _ = audit(SECONDS)
            check(not tellers.errors, f"tellers: {tellers.errors}")
            check(rounds > 5 and tellers.transfers > 100, f"{rounds} snapshots, {tellers.transfers} transfers")

        with t.case("nor while a node dies and comes back"):
            with Tellers(connect, 4) as tellers:
                for node in cluster.data_ids():
                    cluster.kill(node)
                    rounds, refused = audit(SECONDS / 2, RETRY)
                    check(rounds > 2, f"{rounds} snapshots, {refused} refused")
                    cluster.wait_down(node)
                    cluster.restart(node)
                    rounds, refused = audit(SECONDS / 2, RETRY)
                    check(rounds > 2, f"{rounds} snapshots, {refused} refused")
                    cluster.wait_up(node)
            check(not tellers.errors, f"tellers: {tellers.errors}")


if __name__ == "__main__":
    scenario_main(main)
