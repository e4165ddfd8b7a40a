"""READ COMMITTED: a statement sees one moment, however many messages it takes, while others move money, index entries and unique keys."""

import contextlib
import random
import threading
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (240, 600)
SECONDS = 60 if FULL else 5
ACCOUNTS, BALANCE = 12_000, 100
ITEMS = 3000
NAMES = 4


class Worker(threading.Thread):
    """Repeats a function with a connection of its own until it is stopped."""

    def __init__(self, connect, work, seed):
        super().__init__(daemon=True)
        self.connect, self.work, self.random = connect, work, random.Random(seed)
        self.stopped, self.done, self.error = threading.Event(), 0, None

    def run(self):
        try:
            with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
                while not self.stopped.is_set():
                    try:
                        self.work(cursor, self.random)
                        self.done += 1
                    except pymysql.MySQLError as error:
                        if error.args[0] not in (1213, 1205):
                            raise
                        cursor.execute("ROLLBACK")
        except Exception as error:  # noqa: BLE001 - told by whoever joins
            self.error = error


def transfer(cursor, chance):
    source, target = chance.sample(range(ACCOUNTS), 2)
    amount = chance.randint(1, 9)
    cursor.execute("BEGIN")
    cursor.execute(f"UPDATE account SET n = n - {amount} WHERE id = {source}")
    cursor.execute(f"UPDATE account SET n = n + {amount} WHERE id = {target}")
    cursor.execute("COMMIT")


def move(cursor, chance):
    cursor.execute(f"UPDATE item SET k = {chance.randrange(1_000_000)} WHERE id = {chance.randrange(ITEMS)}")


def rename(number):
    """The row of a name goes, and another one takes the name, in one transaction. One for each name."""

    def work(cursor, chance):
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT id FROM named WHERE name = 'n{number}' FOR UPDATE")
        ((old,),) = cursor.fetchall()
        cursor.execute(f"DELETE FROM named WHERE id = {old}")
        cursor.execute(f"INSERT INTO named (name, visits) VALUES ('n{number}', 0)")
        cursor.execute("COMMIT")

    return work


def rows(cursor, statement):
    cursor.execute(statement)
    return cursor.fetchall()


def totals(cursor, _chance):
    for total in ("SUM(n)", "SUM(n + 0)"):  # beside the data, and here
        check_equal(int(rows(cursor, f"SELECT {total} FROM account")[0][0]), ACCOUNTS * BALANCE, total)
    some = sum(n for (n,) in rows(cursor, "SELECT n FROM account"))
    check_equal(some, ACCOUNTS * BALANCE, "the sum of all rows")
    # In a transaction, with changes of its own.
    cursor.execute("BEGIN")
    cursor.execute("UPDATE account SET n = n + 1000 WHERE id = -1")
    check_equal(int(rows(cursor, "SELECT SUM(n) FROM account")[0][0]), ACCOUNTS * BALANCE + 1000, "with an own change")
    cursor.execute("ROLLBACK")


def entries(cursor, _chance):
    found = [n for (n,) in rows(cursor, "SELECT id FROM item WHERE k >= 0")]
    check_equal(len(found), len(set(found)), "rows found twice")
    check_equal(len(found), ITEMS, "rows found by the index that entries move in")
    halves = rows(cursor, "SELECT COUNT(*) FROM item WHERE k < 500000 OR k >= 500000 AND k < 2000000")
    check_equal(halves[0][0], ITEMS, "rows found by two ranges of it")


def names(cursor, chance):
    number = chance.randrange(NAMES)
    check_equal(len(rows(cursor, f"SELECT id FROM named WHERE name = 'n{number}'")), 1, "rows of a name that is always there")
    several = ", ".join(f"'n{n}'" for n in range(NAMES))
    check_equal(len(rows(cursor, f"SELECT id FROM named WHERE name IN ({several})")), NAMES, "rows of names that are always there")


def prepare(connection):
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("USE shop")
        cursor.execute("CREATE TABLE account (id INT PRIMARY KEY, n INT NOT NULL)")
        cursor.execute("CREATE TABLE item (id INT PRIMARY KEY, k INT NOT NULL, KEY (k))")
        cursor.execute("CREATE TABLE named (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20) UNIQUE, visits INT)")
        for first in range(0, ACCOUNTS, 1000):
            some = ", ".join(f"({n}, {BALANCE})" for n in range(first, first + 1000))
            cursor.execute(f"INSERT INTO account VALUES {some}")
        cursor.execute("INSERT INTO account VALUES (-1, 0)")
        some = ", ".join(f"({n}, {n})" for n in range(ITEMS))
        cursor.execute(f"INSERT INTO item VALUES {some}")
        some = ", ".join(f"('n{n}', 0)" for n in range(NAMES))
        cursor.execute(f"INSERT INTO named (name, visits) VALUES {some}")


def amid(t, connect, changers, reader, name):
    """Reads with two connections while others change."""
    with t.case(name):
        writers = [Worker(connect, work, seed) for seed, work in enumerate(changers)]
        readers = [Worker(connect, reader, 100 + seed) for seed in range(2)]
        everybody = writers + readers
        for worker in everybody:
            worker.start()
        def ended():
            return any(not worker.is_alive() for worker in everybody)

        began = time.monotonic()
        try:
            wait_until(lambda: ended() or time.monotonic() - began > SECONDS and all(w.done > 5 for w in everybody), SECONDS + 60, "everybody gets on")
        finally:
            for worker in everybody:
                worker.stopped.set()
        for worker in everybody:
            worker.join(30)
            check(not worker.is_alive(), f"{worker.work} has not ended")
        for worker in everybody:
            if worker.error is not None:
                raise worker.error
        t.say(f"{sum(w.done for w in readers)} readings amid {sum(w.done for w in writers)} changes")


def main(t):
    with Cluster(t, data_nodes=2) as cluster:
        host, port = cluster.sql

        def connect(database="shop"):
            return pymysql.connect(host=host, port=port, user="root", database=database, autocommit=True, read_timeout=30)

        with contextlib.closing(connect(None)) as connection:
            prepare(connection)
        amid(t, connect, [transfer] * 4, totals, "totals are those of a moment")
        amid(t, connect, [move] * 4, entries, "an entry that moves in an index is seen once")
        amid(t, connect, [rename(n) for n in range(NAMES)], names, "a unique key that always has a row is found")


if __name__ == "__main__":
    scenario_main(main)
