"""What clients of the SQL nodes get while the cluster is frozen: the number that drivers try again (1297), soon, on connections that live on.

One group of two replicas, of which one is killed together with the only management node: the other holds every row and may not go on
before either is back.
"""

import contextlib
import itertools
import threading
import time

import pymysql

from lib.harness import check, check_equal, scenario_main, wait_until
from process.faults import Round, kill_all
from process.rig import Rig

LIMIT_SECONDS = (240, 240)
CLIENTS = 12
# The first statement waits a second for a freeze that is over in a moment (`FROZEN_NS` of the native client); the rest is the machine's.
ANSWER_SECONDS = 2.0
# From the second statement on nobody waits.
LATER_SECONDS = 0.5
# Longer than every time-out of the client library but that of a batch under way.
FROZEN_SECONDS = 12
TEMPORARY = 1297


def connect(rig, number):
    node = rig.sql[number % len(rig.sql)]
    host, port = node.address.rsplit(":", 1)
    return pymysql.connect(host=host, port=int(port), user="root", password=rig.password, autocommit=True, read_timeout=60)


class Writer(threading.Thread):
    """Inserts one row after the other over one connection and notes what became of each."""

    places = itertools.count(1)

    def __init__(self, rig, number):
        super().__init__(daemon=True)
        self.rig, self.number = rig, number
        self.first = next(Writer.places) * 1_000_000
        self.stop = threading.Event()
        # Of each write: id, when it was sent, how long it took, MySQL's number (0: acknowledged).
        self.seen = []
        self.error = None

    def run(self):
        try:
            with contextlib.closing(connect(self.rig, self.number)) as connection, connection.cursor() as cursor:
                count = 0
                while not self.stop.is_set():
                    count += 1
                    row = self.first + count
                    begin = time.monotonic()
                    try:
                        cursor.execute(f"INSERT INTO d.t VALUES ({row}, {self.number})")
                        code = 0
                    except pymysql.MySQLError as error:
                        code = error.args[0]
                    self.seen.append((row, begin, time.monotonic() - begin, code))
                    self.stop.wait(0.005)  # the load, not a synchronisation
        except Exception as error:  # told by the case
            self.error = error


def refused(cursor, statement, seconds):
    begin = time.monotonic()
    try:
        cursor.execute(statement)
        cursor.fetchall()
    except pymysql.MySQLError as error:
        took = time.monotonic() - begin
        check(error.args[0] == TEMPORARY and "APUS-309" in error.args[1], f"{statement}: {error}")
        check(took < seconds, f"{statement}: refused after {took:.1f} s")
        return
    check(False, f"{statement} was executed")


def start(rig, count):
    writers = [Writer(rig, n) for n in range(count)]
    for writer in writers:
        writer.start()
    return writers


def hear(writers, since):
    """All of them have heard the number."""
    deaf = [w.number for w in writers if not any(sent > since and code == TEMPORARY for _, sent, _, code in list(w.seen))]
    check(not deaf, f"writers without an answer: {deaf}")
    return True


def check_refusals(writers, since):
    """All that they sent since then was refused, and soon."""
    for writer in writers:
        check(writer.error is None, f"writer {writer.number}: {writer.error!r}")
        wrong = [s for s in writer.seen if s[1] > since and (s[3] != TEMPORARY or s[2] > LATER_SECONDS)]
        check(not wrong, f"writer {writer.number}: {wrong[:3]}")


def all_kinds(rig):
    """Every kind of statement, on a new connection as well."""
    with contextlib.closing(connect(rig, 0)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        for statement in (
            "SELECT v FROM d.t WHERE id = 1",
            "SELECT v FROM d.t WHERE id IN (1, 2, 3, 4, 5, 6, 7, 8)",
            "SELECT COUNT(*) FROM d.t",
            "SELECT * FROM d.t WHERE v > 0 ORDER BY id LIMIT 3",
            "UPDATE d.t SET v = v + 1 WHERE id = 2",
            "UPDATE d.t SET v = v + 1",
            "DELETE FROM d.t WHERE id = 3",
            "INSERT INTO d.a (v) VALUES (1), (2)",
            "CREATE TABLE d.u (id INT PRIMARY KEY)",
        ):
            refused(cursor, statement, ANSWER_SECONDS)
        cursor.execute("BEGIN")
        refused(cursor, "SELECT v FROM d.t WHERE id = 1", ANSWER_SECONDS)
        begin = time.monotonic()
        cursor.execute("ROLLBACK")
        check(time.monotonic() - begin < ANSWER_SECONDS, "ROLLBACK waits")
        cursor.execute("SELECT CONNECTION_ID()")
        check(cursor.fetchone()[0] == connection.thread_id(), "another connection")


@contextlib.contextmanager
def transactions(rig, first):
    """Cursors in open transactions, each of which has changed a row of its own."""
    with contextlib.ExitStack() as stack:
        cursors = []
        for n in range(CLIENTS):
            connection = stack.enter_context(contextlib.closing(connect(rig, n)))
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            cursor.execute(f"INSERT INTO d.t VALUES ({first - n}, 0)")
            cursors.append(cursor)
        yield cursors


def end_transactions(cursors):
    """By ROLLBACK, COMMIT and another statement in turn: none waits, each says that it is rolled back."""
    for n, cursor in enumerate(cursors):
        statement = ("ROLLBACK", "COMMIT", "UPDATE d.t SET v = 1 WHERE id = 1")[n % 3]
        begin, code = time.monotonic(), 0
        try:
            cursor.execute(statement)
        except pymysql.MySQLError as error:
            code = error.args[0]
        took = time.monotonic() - begin
        check(code == (1213 if n % 3 else 0) and took < ANSWER_SECONDS, f"{statement}: {code} after {took:.1f} s")


def main(t):
    with Rig(t.directory, data_nodes=2, replicas=2) as rig:
        with rig.connect() as cursor:
            cursor.execute("CREATE DATABASE d")
            cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL)")
            cursor.execute("CREATE TABLE d.a (id INT PRIMARY KEY AUTO_INCREMENT, v INT NOT NULL)")
            cursor.execute("INSERT INTO d.t VALUES " + ", ".join(f"({i}, 0)" for i in range(1, 9)))
        writers = start(rig, CLIENTS)
        wait_until(lambda: all(len(w.seen) > 20 for w in writers), 10, "all write")
        opened = t.cleanup.enter_context(transactions(rig, -1))
        with t.case("connections made while it is frozen hear the number, each statement but the first at once"):
            this = Round(rig, 0)
            kill_all(this, [this.arbitrator, this.president])
            begin = time.monotonic()
            newer = start(rig, CLIENTS)
            wait_until(lambda: hear(newer, begin), 5, "every new connection is refused")
            wait_until(lambda: time.monotonic() > begin + FROZEN_SECONDS, FROZEN_SECONDS + 1, "it was frozen long enough")
            check_refusals(writers + newer, begin + ANSWER_SECONDS)
            check(all(len(w.seen) > 100 for w in newer), f"statements: {[len(w.seen) for w in newer]}")
            writers += newer
        with t.case("open transactions end"):
            end_transactions(opened)
        with t.case("every kind of statement is refused with the number, and connections can be made"):
            all_kinds(rig)
        with t.case("who was under way when it froze hears what became of it, and all go on over their connections"):
            back = time.monotonic()
            rig.wait_whole()
            wait_until(lambda: all(any(s[1] > back and s[3] == 0 for s in list(w.seen)) for w in writers), 20, "all write again")
            for writer in writers:
                writer.stop.set()
            for writer in writers:
                writer.join(30)
                check(not writer.is_alive() and writer.error is None, f"writer {writer.number}: {writer.error!r}")
            codes = sorted({s[3] for w in writers for s in w.seen})
            t.say(f"{sum(len(w.seen) for w in writers)} statements, numbers {codes}")
            # Of what was under way at the node that died nobody can tell before the cluster goes on.
            unknown = {s[0]: s[1] for w in writers for s in w.seen if s[3] == 1180}
            check(set(codes) <= {0, 1180, 1213, TEMPORARY}, "a connection was lost")
            check(all(sent < begin for sent in unknown.values()), f"unknown, and sent while it was frozen: {unknown}")
            with rig.connect() as cursor:
                cursor.execute("SELECT id FROM d.t WHERE id > 8")
                there = {row[0] for row in cursor.fetchall()}
            acknowledged = {s[0] for w in writers for s in w.seen if s[3] == 0}
            check_equal(sorted(acknowledged - there), [], "acknowledged and lost")
            check_equal(sorted(there - acknowledged - set(unknown)), [], "refused and there")


if __name__ == "__main__":
    scenario_main(main)
