"""A statement that data nodes die under is tried once more, and refused by name when a second one has died under it.

One group of three replicas. An UPDATE of all rows runs while a data node is killed; it begins again on those that are left, of which one is
killed as well. The node that stays keeps every row and serves others.
"""

import contextlib
import threading

import pymysql

from lib.cluster import Cluster
from lib.harness import check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (240, 240)
ROWS = 300_000
LOCKED = 3572
# APUS-209, as MySQL's clients are told: no number that is for trying again.
REFUSED = (1296, "APUS-209")
STATEMENT = "UPDATE d.t SET v = v + 1"


class Statement(threading.Thread):
    """Runs one statement on a connection of its own."""

    def __init__(self, address, statement):
        super().__init__(daemon=True)
        (self.host, self.port), self.statement, self.error = address, statement, None

    def run(self):
        connection = pymysql.connect(host=self.host, port=self.port, user="root", autocommit=True, read_timeout=120)
        with contextlib.closing(connection), connection.cursor() as cursor:
            try:
                cursor.execute(self.statement)
            except pymysql.MySQLError as error:
                self.error = error


def members(cluster):
    return [n["id"] for n in cluster.status()["nodes"] if n["state"] == "up"]


def has_locks(cursor):
    """Whether the statement has got as far as the data nodes: it has locked its first row."""
    try:
        cursor.execute("SELECT v FROM d.t WHERE id = 0 FOR UPDATE NOWAIT")
    except pymysql.MySQLError as error:
        return error.args[0] == LOCKED
    return False


def main(t):
    with Cluster(t, data_nodes=3, replicas=3, memory=1024) as cluster:
        host, port = cluster.sql
        connection = pymysql.connect(host=host, port=port, user="root", autocommit=True, read_timeout=60)
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE d")
            cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL)")
            for first in range(0, ROWS, 10_000):
                cursor.execute("INSERT INTO d.t VALUES " + ",".join(f"({n}, 0)" for n in range(first, first + 10_000)))
            statement = Statement(cluster.sql, STATEMENT)
            with t.case("the statement is tried again when a node dies under it"):
                statement.start()
                wait_until(lambda: has_locks(cursor), 20, "the statement has locks")
                cluster.kill(1)
                wait_until(lambda: members(cluster) == [2, 3], 20, "the others go on")
                wait_until(lambda: has_locks(cursor), 20, "the statement has locks again")
            with t.case("it is refused by name when another one does"):
                cluster.kill(2)
                statement.join(60)
                check(not statement.is_alive(), "it waits for ever")
                check(statement.error is not None, "it was executed a third time")
                number, text = statement.error.args
                t.say(text)
                check(number == REFUSED[0] and REFUSED[1] in text and STATEMENT in text, f"{number}: {text}")
            with t.case("nothing of it has happened, and others are served"):
                cursor.execute("SELECT COUNT(*), MIN(v), MAX(v) FROM d.t")
                check_equal(cursor.fetchone(), (ROWS, 0, 0), "rows")
                check_equal(cursor.execute("UPDATE d.t SET v = 1 WHERE id = 7"), 1, "rows that another statement changes")
                check_equal(members(cluster), [3], "members")


if __name__ == "__main__":
    scenario_main(main)
