"""A bank on a cluster with a directory: money is moved by the stock client until everything dies, and the books are compared with what is left."""

import contextlib
import os
import random
import signal
import threading
import time

import pymysql

from .cluster import Cluster
from .harness import alive, check, check_equal, wait_until

TELLERS, ACCOUNTS, BALANCE = 4, 40, 1000


def connect(address):
    host, port = address
    return pymysql.connect(host=host, port=port, user="root", database="bank", autocommit=True, read_timeout=60)


class Teller(threading.Thread):
    """Moves money until its connection ends, and notes what was acknowledged and when."""

    def __init__(self, number, first, address):
        super().__init__(daemon=True)
        self.number, self.next, self.address = number, first, address
        self.done, self.open, self.error = {}, None, None
        self.stop = threading.Event()

    def run(self):
        chance = random.Random(self.number)
        try:
            with contextlib.closing(connect(self.address)) as connection, connection.cursor() as cursor:
                while not self.stop.is_set():
                    self.transfer(cursor, chance)
        except pymysql.MySQLError as error:
            self.error = error

    def transfer(self, cursor, chance):
        number, self.next = self.next, self.next + TELLERS
        source, target = chance.sample(range(ACCOUNTS), 2)
        amount = chance.randint(1, 9)
        self.open = number
        try:
            cursor.execute("BEGIN")
            cursor.execute(f"UPDATE account SET balance = balance - {amount} WHERE id = {source}")
            cursor.execute(f"UPDATE account SET balance = balance + {amount} WHERE id = {target}")
            cursor.execute(f"INSERT INTO transfer VALUES ({number}, 'name {number}', {source}, {target}, {amount})")
            cursor.execute(f"INSERT INTO visit VALUES ({number}, 'name {number}')")
            cursor.execute("COMMIT")
        except pymysql.err.OperationalError as error:
            if error.args[0] != 1213:
                raise
            cursor.execute("ROLLBACK")  # a deadlock: rolled back, and told so
            self.open = None
            return
        self.done[number] = time.monotonic()
        self.open = None


def prepare(cluster):
    host, port = cluster.sql
    with contextlib.closing(pymysql.connect(host=host, port=port, user="root", autocommit=True)) as connection:
        with connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE bank")
            cursor.execute("CREATE TABLE bank.account (id INT PRIMARY KEY, balance INT NOT NULL)")
            cursor.execute(
                "CREATE TABLE bank.transfer (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE, source INT, target INT, amount INT, KEY (source))"
            )
            # Its rows are in no log, though transactions have both kinds.
            cursor.execute(
                "CREATE TABLE bank.visit (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE) COMMENT='of today; apus: durable=no'"
            )
            rows = ", ".join(f"({n}, {BALANCE})" for n in range(ACCOUNTS))
            cursor.execute(f"INSERT INTO bank.account VALUES {rows}")


def audit(cluster, acknowledged, unsure):
    """The ids of the transfers that are there; checked against the balances and through both indexes."""
    with contextlib.closing(connect(cluster.sql)) as connection, connection.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("SELECT id, balance FROM account")
        balances = dict(cursor.fetchall())
        cursor.execute("SELECT id, name, source, target, amount FROM transfer")
        transfers = cursor.fetchall()
        cursor.execute("SELECT COUNT(*) FROM transfer FORCE INDEX (source) WHERE source >= 0")
        check_equal(cursor.fetchone()[0], len(transfers), "rows through the ordered index")
        cursor.execute("COMMIT")
        for number, name, *_ in transfers[:: max(1, len(transfers) // 50)]:
            cursor.execute(f"SELECT id FROM transfer WHERE name = '{name}'")
            check_equal(cursor.fetchall(), ((number,),), f"{name} through the unique index")
    expected = {n: BALANCE for n in range(ACCOUNTS)}
    for _, _, source, target, amount in transfers:
        expected[source] -= amount
        expected[target] += amount
    check_equal(balances, expected, "balances and transfers")
    there = {number for number, *_ in transfers}
    check_equal(sorted(there - set(acknowledged) - unsure), [], "transfers that nobody made")
    return there


def check_not_durable(cluster):
    """The table that is not durable is there, defined as it was, and has nothing: not in its unique index either."""
    with contextlib.closing(connect(cluster.sql)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW CREATE TABLE visit")
        check("apus: durable=no" in cursor.fetchone()[1], "the table is what it was")
        cursor.execute("SELECT COUNT(*) FROM visit")
        check_equal(cursor.fetchone()[0], 0, "rows of the table that is not durable")
        cursor.execute("SELECT name FROM transfer LIMIT 1")
        (name,) = cursor.fetchone()
        cursor.execute(f"INSERT INTO visit VALUES (-1, '{name}')")  # was taken before
        cursor.execute(f"SELECT id FROM visit WHERE name = '{name}'")
        check_equal(cursor.fetchall(), ((-1,),), "through the unique index")
        cursor.execute("DELETE FROM visit")


class Bank:
    """A cluster with a directory, the tellers at work on it, and their books over all its lives."""

    def __init__(self, t, directory=None, durability="disk", checkpoint_log=1, **options):
        """A checkpoint begins after so many MiB of log: one, so that there are some. More options are for `apus dev`."""
        self.t, self.directory, self.durability = t, directory or t.directory / "data", durability
        self.options = {"checkpoint_log": checkpoint_log, **options}
        self.acknowledged, self.unsure, self.starts, self.first = {}, set(), 0, 0
        self.cluster, self.tellers = None, []

    def __enter__(self):
        self.start()
        prepare(self.cluster)
        self.set_durability(self.durability)
        return self

    def __exit__(self, kind, value, trace):
        self.close_books()
        if self.cluster is not None:
            self.cluster.__exit__(kind, value, trace)

    def start(self, meanwhile=None):
        self.starts += 1
        name = f"{self.directory.name}-{self.starts}"
        self.cluster = Cluster(self.t, name=name, meanwhile=meanwhile, dir=self.directory, **self.options).__enter__()

    def checkpoints(self, node):
        return sorted((self.directory / "files" / f"data-{node}").glob("lcp-*.data"))

    def set_durability(self, durability):
        self.cluster.apus("cluster", "set", f"durability={durability}")

    def work(self, seconds_min):
        """Begins to move money; returns when some is moved."""
        self.tellers = [Teller(n, self.first + n, self.cluster.sql) for n in range(TELLERS)]
        [teller.start() for teller in self.tellers]
        begin = time.monotonic()
        wait_until(
            lambda: time.monotonic() > begin + seconds_min and all(len(teller.done) > 20 for teller in self.tellers),
            60,
            "money is moved",
        )

    def goes_on(self):
        """Money is moved still; how long that took to be seen."""
        began, done = time.monotonic(), [len(teller.done) for teller in self.tellers]
        errors = [teller.error for teller in self.tellers if teller.error]
        check(not errors, f"tellers met {errors}")
        wait_until(lambda: all(len(t.done) > n + 5 for t, n in zip(self.tellers, done)), 30, "money is moved again")
        return time.monotonic() - began

    def kill_all(self):
        """`kill -9` of everything at once; when the last one is gone."""
        cluster, self.cluster = self.cluster, None
        pids = [cluster.process.pid, *cluster.everyone().values()]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        moment = time.monotonic()
        cluster.process.wait()
        wait_until(lambda: not any(alive(pid) for pid in pids), 20, "all processes are gone")
        self.close_books()
        return moment

    def end(self):
        """Ctrl-C, as a terminal sends it: to all of its group. What the cluster said last."""
        cluster, self.cluster = self.cluster, None
        pids = list(cluster.everyone().values())
        os.killpg(cluster.process.pid, signal.SIGINT)
        cluster.process.wait(60)
        self.close_books()
        wait_until(lambda: not any(alive(pid) for pid in pids), 20, "all processes are gone")
        return cluster.logs()

    def close_books(self):
        for teller in self.tellers:
            teller.stop.set()
            teller.join(70)
            check(not teller.is_alive(), f"teller {teller.number} has not ended")
            self.acknowledged |= teller.done
            self.unsure |= {teller.open} - {None}
            self.first = max(self.first, teller.next + TELLERS)
        self.tellers = []

    def lost(self):
        """{number: when} of what was acknowledged and is not there; all else is as it must be."""
        there = audit(self.cluster, self.acknowledged, self.unsure)
        return {number: at for number, at in self.acknowledged.items() if number not in there}

    def check_nothing_lost(self):
        check_equal(sorted(self.lost()), [], "acknowledged and lost")

    def check_visits(self):
        """No process of the cluster has ended that nobody took over from: rows of the table that is not durable are as the others."""
        with contextlib.closing(connect(self.cluster.sql)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM transfer LEFT JOIN visit ON visit.id = transfer.id WHERE visit.id IS NULL")
            check_equal(cursor.fetchone()[0], 0, "transfers without their visit")
