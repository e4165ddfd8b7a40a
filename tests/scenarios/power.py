"""All processes of a cluster with a directory are killed at once, amid transfers, and it is started again: everything that was acknowledged is there.

In class `disk` nothing acknowledged is lost; in class `replicated` only the last tenths of a second, and what is left is of one moment; after an orderly
end nothing is, whatever the class. FULL: 50 rounds of the first.
"""

import contextlib
import os
import random
import signal
import threading
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import FULL, alive, check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (240, 1800)
ROUNDS = 50 if FULL else 4
TELLERS, ACCOUNTS, BALANCE = 4, 40, 1000
# What class `replicated` may lose: a global checkpoint each 0.1 s, and what a loaded machine adds.
LOST_SECONDS = 2.0


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


def kill_all(cluster):
    """`kill -9` of everything at once; when the last one is gone."""
    pids = [cluster.process.pid, *cluster.everyone().values()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    moment = time.monotonic()
    cluster.process.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids), 20, "all processes are gone")
    return moment


def checkpoints(directory, node):
    return sorted((directory / "files" / f"data-{node}").glob("lcp-*.data"))


def spoil(files):
    """A bit of the first block of each."""
    for file in files:
        content = bytearray(file.read_bytes())
        content[100] ^= 4
        file.write_bytes(content)


class Bank:
    """The tellers' books over all rounds, and the cluster of the moment."""

    def __init__(self, t):
        self.t, self.directory = t, t.directory / "data"
        self.acknowledged, self.unsure, self.starts, self.first = {}, set(), 0, 0

    def start(self):
        self.starts += 1
        return Cluster(self.t, name=f"c{self.starts}", dir=self.directory, checkpoint_log=1).__enter__()

    def work(self, cluster, seconds_min):
        tellers = [Teller(n, self.first + n, cluster.sql) for n in range(TELLERS)]
        [teller.start() for teller in tellers]
        begin = time.monotonic()
        wait_until(
            lambda: time.monotonic() > begin + seconds_min and all(len(teller.done) > 20 for teller in tellers),
            60,
            "money is moved",
        )
        return tellers

    def close(self, tellers):
        for teller in tellers:
            teller.stop.set()
            teller.join(70)
            check(not teller.is_alive(), f"teller {teller.number} has not ended")
            self.acknowledged |= teller.done
            self.unsure |= {teller.open} - {None}
            self.first = max(self.first, teller.next + TELLERS)

    def lost(self, cluster):
        there = audit(cluster, self.acknowledged, self.unsure)
        return {number: at for number, at in self.acknowledged.items() if number not in there}


def main(t):
    bank = Bank(t)
    cluster = bank.start()
    try:
        prepare(cluster)
        cluster.apus("cluster", "set", "durability=disk")
        with t.case(f"class disk: nothing is lost by {ROUNDS} kills of all processes"):
            for _ in range(ROUNDS):
                tellers = bank.work(cluster, 0.5)
                kill_all(cluster)
                bank.close(tellers)
                begin = time.monotonic()
                cluster = bank.start()
                t.say(f"serves again after {time.monotonic() - begin:.1f} s, {len(bank.acknowledged)} transfers so far")
                check_equal(sorted(bank.lost(cluster)), [], "acknowledged and lost")
                check_not_durable(cluster)
        with t.case("the starts have read checkpoints, and each file of them is whole"):
            tellers = bank.work(cluster, 1.0)
            wait_until(lambda: all(checkpoints(bank.directory, id) for id in (1, 2)), 60, "each node has a checkpoint")
            kill_all(cluster)
            bank.close(tellers)
            files = [str(file) for id in (1, 2) for file in checkpoints(bank.directory, id)]
            _, printed = cluster.apus("inspect", "--brief", *files)
            check("up to epoch" in printed, printed)
            cluster = bank.start()
            last = [line for line in cluster.log_of("data-1").splitlines() if "put back" in line][-1]
            check("put back 0 rows from checkpoints" not in last, last)
            check_equal(sorted(bank.lost(cluster)), [], "acknowledged and lost")
        with t.case("a checkpoint that is damaged leaves its node out, and the replica fills it"):
            tellers = bank.work(cluster, 0.5)
            kill_all(cluster)
            bank.close(tellers)
            spoil(checkpoints(bank.directory, 1))
            cluster = bank.start()
            cluster.wait_up(1)
            cluster.wait_up(2)
            check("is damaged" in cluster.log_of("data-1"), cluster.log_of("data-1"))
            check_equal(sorted(bank.lost(cluster)), [], "acknowledged and lost")
        with t.case("class replicated: what is left is of one moment, shortly before"):
            cluster.apus("cluster", "set", "durability=replicated")
            tellers = bank.work(cluster, 1.0)
            moment = kill_all(cluster)
            bank.close(tellers)
            cluster = bank.start()
            lost = bank.lost(cluster)
            ages = [moment - at for at in lost.values()]
            t.say(f"{len(lost)} acknowledged transfers lost, the oldest {max(ages, default=0) * 1000:.0f} ms before the end")
            check(max(ages, default=0) < LOST_SECONDS, f"{max(ages):.1f} s are lost")
            bank.acknowledged = {n: at for n, at in bank.acknowledged.items() if n not in lost}
        with t.case("an orderly end loses nothing, whatever the class"):
            tellers = bank.work(cluster, 0.5)
            pids = list(cluster.everyone().values())
            cluster.process.send_signal(signal.SIGTERM)
            cluster.process.wait(60)
            bank.close(tellers)
            wait_until(lambda: not any(alive(pid) for pid in pids), 20, "all processes are gone")
            check("without having made everything durable" not in cluster.logs(), cluster.logs())
            cluster = bank.start()
            check_equal(sorted(bank.lost(cluster)), [], "acknowledged and lost")
    finally:
        cluster.__exit__(None, None, None)


if __name__ == "__main__":
    scenario_main(main)
