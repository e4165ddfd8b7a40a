"""A SQL node decides while the only management node of `apus dev` is dead: the next crash of a data node costs milliseconds and no row.

One group of two replicas. The management node is killed, the members name the SQL node, one data node is killed: the other goes on and
serves. When the management node is back it is named again.
"""

import contextlib
import os
import pathlib
import signal
import threading
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import alive, check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (180, 180)
# A loaded machine; what was measured is printed. Without an arbitrator nobody is served until the management node is back.
GAP_SECONDS = 2.0


class Writer(threading.Thread):
    """Inserts one row after the other and notes when each was acknowledged."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.host, self.port = address
        self.stop = threading.Event()
        self.done, self.unsure, self.error = [], [], None

    def run(self):
        try:
            connection = pymysql.connect(host=self.host, port=self.port, user="root", autocommit=True, read_timeout=60)
            with contextlib.closing(connection), connection.cursor() as cursor:
                row = 0
                while not self.stop.is_set():
                    row += 1
                    try:
                        cursor.execute(f"INSERT INTO d.t VALUES ({row})")
                        self.done.append((row, time.monotonic()))
                    except pymysql.MySQLError as error:
                        self.unsure.append((row, error))
                    self.stop.wait(0.001)  # the load, not a synchronisation
        except Exception as error:  # told by the case
            self.error = error

    def gap_after(self, moment):
        """Longest time without an acknowledged row from then on, in seconds."""
        times = [moment] + [at for _, at in list(self.done) if at > moment]
        return max((b - a for a, b in zip(times, times[1:])), default=0.0)


def named_last(cluster):
    """Who arbitrates as each data node's log says last."""
    directory = pathlib.Path(cluster.describe()["dir"])
    logs = [directory / f"data-{n}.log" for n in cluster.data_ids() if alive(cluster.data_pid(n))]
    lines = [[line for line in log.read_text(errors="replace").splitlines() if "arbitrates" in line] for log in logs]
    return {found[-1].split(" ", 1)[1] if found else "" for found in lines}


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), 10, f"process {pid} is gone")


def main(t):
    with Cluster(t, data_nodes=2, replicas=2) as cluster:
        host, port = cluster.sql
        with contextlib.closing(pymysql.connect(host=host, port=port, user="root", autocommit=True)) as connection:
            with connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE d")
                cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        with t.case("the status names the arbitrator, its role, and who would stand in"):
            wait_until(lambda: cluster.status()["sql_arbitrators"] == [1], 20, "the SQL node has met the cluster")
            status = cluster.status()
            check_equal((status["arbitrator"], status["arbitrator_role"]), (1, "management"), "the arbitrator")
            text = cluster.apus("status")[1]
            check("management node 1 arbitrates, SQL node 1 would stand in" in text, text)
        writer = Writer((host, port))
        writer.start()
        wait_until(lambda: len(writer.done) > 100, 20, "rows are written")
        with t.case("the SQL node is named when the management node dies"):
            kill(cluster.describe()["mgmt"]["pid"])
            wait_until(lambda: named_last(cluster) == {"SQL node 1 arbitrates"}, 20, "both members name the SQL node")
        with t.case("a data node dies, and the other goes on within milliseconds"):
            begin, before = time.monotonic(), len(writer.done)
            kill(cluster.data_pid(1))
            wait_until(lambda: len(writer.done) > before + 200, 30, "rows are written again")
            gap = writer.gap_after(begin)
            t.say(f"longest time without a row: {gap * 1000:.0f} ms")
            check(gap < GAP_SECONDS, f"no row for {gap:.1f} s")
        with t.case("the management node comes back and is named"):
            cluster.apus("dev", "restart", "mgmt-1")
            wait_until(lambda: cluster.status()["arbitrator_role"] == "management", 20, "the SQL node gives way")
            cluster.restart(1)
            cluster.wait_up(1)
        with t.case("nothing acknowledged is lost"):
            writer.stop.set()
            writer.join(30)
            check(not writer.is_alive() and writer.error is None, f"{writer.error!r}")
            with contextlib.closing(pymysql.connect(host=host, port=port, user="root", autocommit=True)) as connection:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT id FROM d.t")
                    there = {row[0] for row in cursor.fetchall()}
            wrote = {row for row, _ in writer.done}
            check_equal(sorted(wrote - there), [], "acknowledged and lost")
            check_equal(sorted(there - wrote - {row for row, _ in writer.unsure}), [], "refused and there")
            t.say(f"{len(wrote)} rows, {len(writer.unsure)} refused")


if __name__ == "__main__":
    scenario_main(main)
