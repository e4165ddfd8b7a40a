"""One transaction changes very many rows: it commits, rolls back, survives the death of a node, or is refused by its limit in bytes; small
transactions and snapshots beside it, by SQL and by the native client, hardly notice, and nobody is removed.

FULL=1 takes a million rows; ROWS=n another number, MEMORY=n so many MiB for a data node (five million rows: 4096)."""

import os
import re
import threading
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, scenario_main

LIMIT_SECONDS = (240, 1200)
ROWS = int(os.environ.get("ROWS", 1_000_000 if FULL else 40_000))
MEMORY = int(os.environ.get("MEMORY", 1024))
SEED_ROWS = 1000
# What one small operation may take while the large transaction runs, beside which the machine has nothing to do (p99, FULL only).
SMALL_SECONDS = 0.005
# No operation beside it may ever take so long, however busy the machine: a worker that is held shows as this.
STALL_SECONDS = 2.0
# FULL only: a SQL node that makes a million rows in one turn of its thread holds a small operation for 0.2 s and more.
TURN_SECONDS = 0.1


class Small:
    """One row is changed and read, and a snapshot is taken, again and again; how long each took."""

    def __init__(self, connect):
        self.connect, self.stop, self.times, self.errors = connect, threading.Event(), [], []
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def run(self):
        cursor = self.connect().cursor()
        while not self.stop.is_set():
            for statement in ("UPDATE small SET v = v + 1 WHERE id = 1", "SELECT v FROM small WHERE id = 1",
                              "START TRANSACTION WITH CONSISTENT SNAPSHOT", "SELECT v FROM small WHERE id = 1", "COMMIT"):
                begin = time.monotonic()
                try:
                    cursor.execute(statement)
                    cursor.fetchall()
                except pymysql.MySQLError as error:
                    self.errors.append(error)
                    return
                self.times.append((time.monotonic() - begin, statement))

    def percentile(self, share):
        return sorted(self.times)[int(len(self.times) * share)][0] if self.times else 0.0


class Native:
    """The same without SQL: `apus bench kv` changes and reads one row at a time. Of each of its runs, p99 and maximum in milliseconds."""

    PHASES = ("update", "read")
    COMMAND = ("bench", "kv", "--single-thread", "--batch=1", "--keys=1000", "--seconds=1")
    LINE = re.compile(r"^(\w+) .*p99 ([0-9.]+) .*max ([0-9.]+) us", re.MULTILINE)

    def __init__(self, cluster):
        self.cluster, self.stop, self.runs, self.errors = cluster, threading.Event(), [], []
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.cluster.apus(*self.COMMAND, "--phases=insert")
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def run(self):
        while not self.stop.is_set():
            code, text = self.cluster.apus(*self.COMMAND, "--phases=" + ",".join(self.PHASES), ok=False)
            found = self.LINE.findall(text)
            if code != 0 or [line[0] for line in found] != list(self.PHASES):
                self.errors.append(text)
                return
            self.runs.append([(float(p99) / 1000, float(longest) / 1000) for _, p99, longest in found])

    def say(self):
        """Worst p99 and maximum of each phase since this was asked last."""
        runs, self.runs = self.runs, []
        worst = [tuple(max(run[i][j] for run in runs) for j in (0, 1)) for i in range(len(self.PHASES))] if runs else []
        text = ", ".join(f"{phase} p99 {p99:.1f} longest {longest:.0f} ms" for phase, (p99, longest) in zip(self.PHASES, worst))
        return text, max((p99 for p99, _ in worst), default=0.0) / 1000


def connect(cluster, **options):
    host, port = cluster.sql
    return pymysql.connect(host=host, port=port, user="root", database="large", autocommit=True, **options)


def scalar(cursor, statement):
    cursor.execute(statement)
    return cursor.fetchone()[0]


def fill(cursor):
    """All rows in one transaction."""
    cursor.execute("BEGIN")
    cursor.execute("INSERT INTO t VALUES " + ", ".join(f"({i}, 0)" for i in range(SEED_ROWS)))
    count = SEED_ROWS
    while count < ROWS:
        more = min(count, ROWS - count)
        cursor.execute(f"INSERT INTO t SELECT id + {count}, v FROM t WHERE id < {more}")
        count += more
    cursor.execute("COMMIT")


def timed(t, what, small, native, action):
    """p99 of one operation beside the action, the worse of SQL and native."""
    small.times.clear()
    native.say()
    begin = time.monotonic()
    action()
    seconds = time.monotonic() - begin
    worst, statement = max(small.times, default=(0.0, ""))
    text, p99 = native.say()
    t.say(f"{what}: {seconds:.1f} s; beside it {len(small.times)} small operations, p99 "
          f"{small.percentile(0.99) * 1000:.1f} ms, longest {worst * 1000:.0f} ms ({statement}); native: {text or 'no whole run'}")
    check(not small.errors and not native.errors, f"{what}: {small.errors} {native.errors}")
    most = TURN_SECONDS if FULL else STALL_SECONDS
    check(worst < most, f"{what}: an operation beside it took {worst:.2f} s: {statement}")
    return max(small.percentile(0.99), p99)


def main(t):
    with t.case("beside it others go on, and a node dies"):
        together(t)
    with t.case("beyond its limit it is refused and leaves nothing"):
        limited(t)


def together(t):
    with Cluster(t, data_nodes=2, memory=MEMORY) as cluster:
        host, port = cluster.sql
        pymysql.connect(host=host, port=port, user="root").cursor().execute("CREATE DATABASE large")
        cursor = connect(cluster).cursor()
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT NOT NULL)")
        cursor.execute("CREATE TABLE small (id INT PRIMARY KEY, v BIGINT NOT NULL)")
        cursor.execute("INSERT INTO small VALUES (1, 0)")
        with Small(lambda: connect(cluster)) as small, Native(cluster) as native:
            calm = timed(t, "nothing", small, native, lambda: time.sleep(6))
            p99 = [timed(t, f"{ROWS:,} rows inserted", small, native, lambda: fill(cursor))]
            check_equal(scalar(cursor, "SELECT COUNT(*) FROM t"), ROWS, "rows after the insert")
            p99.append(timed(t, "all updated", small, native, lambda: cursor.execute("UPDATE t SET v = v + 1")))
            # Right after the answer another transaction sees all and may lock any of them.
            other = connect(cluster).cursor()
            check_equal(scalar(other, "SELECT SUM(v) FROM t"), ROWS, "sum after the update")
            other.execute("BEGIN")
            other.execute(f"SELECT v FROM t WHERE id = {ROWS - 1} FOR UPDATE NOWAIT")
            other.execute("ROLLBACK")
            cursor.execute("BEGIN")
            cursor.execute("UPDATE t SET v = v + 10")
            p99.append(timed(t, "all rolled back", small, native, lambda: cursor.execute("ROLLBACK")))
            check_equal(scalar(cursor, "SELECT SUM(v) FROM t"), ROWS, "sum after the rollback")
            if FULL:
                allowed = max(2 * calm, SMALL_SECONDS)
                check(max(p99) <= allowed, f"p99 of small operations {max(p99):.4f} s, {calm:.4f} s without a large one")
        states = {n["id"]: n["state"] for n in cluster.status()["nodes"] if n["id"] in cluster.data_ids()}
        check_equal(set(states.values()), {"up"}, "states of the data nodes")
        # A node dies when the commit has just been answered: its rows are there, on the other node.
        cursor.execute("UPDATE t SET v = v + 1")
        cluster.kill(1)
        cluster.wait_down(1)
        cursor = connect(cluster).cursor()
        check_equal(scalar(cursor, "SELECT SUM(v) FROM t"), 2 * ROWS, "sum after the death of a node")
        cursor.execute("UPDATE t SET v = v + 1")
        cluster.restart(1)
        cluster.wait_up(1)
        check_equal(scalar(cursor, "SELECT SUM(v) FROM t"), 3 * ROWS, "sum after the node came back")
        killed_amid_commits(t, cluster, 3 * ROWS)


def killed_amid_commits(t, cluster, total):
    """Of a transaction whose nodes die while it commits either all rows are changed or none; all, if its client was told so."""
    cursor = connect(cluster, connect_timeout=10).cursor()

    def change():
        cursor.execute("BEGIN")
        cursor.execute("UPDATE t SET v = v + 1")

    def commit():
        begin = time.monotonic()
        try:
            cursor.execute("COMMIT")
            return True, time.monotonic() - begin
        except pymysql.MySQLError as error:
            return error, time.monotonic() - begin

    change()
    committed, lasts = commit()
    check_equal(committed, True, "a commit beside which nobody dies")
    total += ROWS
    outcomes = []
    for i, share in enumerate((0.1, 0.3, 0.5, 0.7, 0.9, 1.2)):
        victim = cluster.data_ids()[i % 2]
        change()
        killer = threading.Timer(share * lasts, cluster.kill, [victim])
        killer.start()
        committed, _ = commit()
        killer.join()
        cluster.wait_down(victim)
        cursor = connect(cluster).cursor()
        found = scalar(cursor, "SELECT SUM(v) FROM t")
        allowed = {total + ROWS} if committed is True else {total, total + ROWS}
        check(found in allowed, f"node {victim} died after {share} of the commit, which was told {committed}: the sum is {found}, not in {allowed}")
        check_equal(scalar(cursor, "SELECT COUNT(DISTINCT v) FROM t"), 1, "every row has the same value")
        outcomes.append("committed" if committed is True else f"{committed.args[0]}, {'all' if found > total else 'none'}")
        total = found
        cluster.restart(victim)
        cluster.wait_up(victim)
    t.say(f"killed amid commits of {lasts * 1000:.0f} ms: {', '.join(outcomes)}")


def limited(t):
    with Cluster(t, name="limited", data_nodes=2, transaction_memory=1) as cluster:
        host, port = cluster.sql
        pymysql.connect(host=host, port=port, user="root").cursor().execute("CREATE DATABASE large")
        cursor = connect(cluster).cursor()
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT NOT NULL)")
        try:
            fill(cursor)
            check(ROWS * 48 < 1 << 20, f"{ROWS} rows went into 1 MiB")
        except pymysql.MySQLError as error:
            check(error.args[0] == 1114 and "--transaction-memory" in error.args[1], f"refused with {error.args}")
        check_equal(scalar(cursor, "SELECT COUNT(*) FROM t"), 0, "rows after the refusal")
        cursor.execute("INSERT INTO t VALUES (1, 1)")


if __name__ == "__main__":
    scenario_main(main)
