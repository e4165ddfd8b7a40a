"""Every data node is restarted in turn, as fast as `apus dev restart` returns, under autocommit statements and sysbench.

No row is lost, no autocommit statement fails, and the last full copy of a node group does not end at a first SIGTERM.
"""

import os
import signal
import time

from lib.cluster import Cluster
from lib.harness import FULL, alive, check, end, scenario_main, wait_until
from lib.mariadb import batch
from lib.probe import Probe
from lib.sysbench import refuse_errors, start, sysbench

LIMIT_SECONDS = (180, 600)
ROUNDS = 5 if FULL else 2
TABLES, ROWS, THREADS = (4, 10_000, 8)
SECONDS = 300 if FULL else 90


def main(t):
    with Cluster(t) as cluster:
        host, port = cluster.sql
        batch("CREATE DATABASE sbtest", host=host, port=port)
        size = {"tables": TABLES, "table_size": ROWS}
        sysbench("oltp_read_write", "prepare", cluster.sql, threads=4, limit=600, **size)
        probe = Probe(cluster.sql)
        probe.start()
        log = t.directory / "sysbench.log"
        load = start("oltp_read_write", cluster.sql, log, threads=THREADS, seconds=SECONDS, **size)
        t.cleanup.callback(end, load)
        with t.case("data nodes restart one after another, as fast as `apus dev restart` returns"):
            began = time.monotonic()
            for _ in range(ROUNDS):
                for node in cluster.data_ids():
                    old = cluster.data_pid(node)
                    code, text = cluster.apus("dev", "restart", str(node), seconds=120, ok=False)
                    check(code == 0, f"restart of data node {node}: {text}")
                    check("holds all its rows" in text, f"it returned early: {text}")
                    cluster.describe()
                    check(cluster.data_pid(node) != old and not alive(old), f"data node {node} is the old process")
            check(load.poll() is None, f"sysbench ended early:\n{log.read_text(errors='replace')[-3000:]}")
            t.say(f"{ROUNDS * len(cluster.data_ids())} restarts in {time.monotonic() - began:.1f} s")
        with t.case("no autocommit statement failed, and every one is there"):
            value = probe.end()
            check(not probe.errors, f"{len(probe.errors)} errors: {probe.errors[:5]}")
            check(value == probe.commits, f"{probe.commits} updates were acknowledged, the row counts {value}")
            t.say(f"probe: {probe.commits} commits, longest gap {max(probe.gaps)[0] * 1000:.0f} ms")
        with t.case("sysbench went on"):
            end(load)
            refuse_errors(log.read_text(errors="replace"))
        with t.case("the last full copy refuses a first SIGTERM and ends at a second"):
            first, last = cluster.data_ids()[:2]
            cluster.kill(first)
            cluster.wait_down(first)
            pid = cluster.data_pid(last)
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: "last full copy" in cluster.node_logs(), 20, "it says why it does not end")
            check(alive(pid), "the last full copy has ended")
            check(probe_value(host, port) == value, "its rows are there")
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not alive(pid), 20, "it ends at the second one")


def probe_value(host, port):
    return int(batch("SELECT v FROM sbtest.probe", host=host, port=port)[1].split()[-1])


if __name__ == "__main__":
    scenario_main(main)
