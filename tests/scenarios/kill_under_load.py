"""sysbench oltp_read_write while each data node in turn is killed with -9, restarted and rejoins.

sysbench must end without a fatal error (it retries 1213 by itself). A probe with one connection commits updates all the time;
the longest time between two of its successful commits is printed: the time for which the cluster did not answer.
"""

import time

from lib.cluster import Cluster
from lib.harness import FULL, Failure, check, end, scenario_main
from lib.mariadb import batch
from lib.probe import Probe
from lib.sysbench import figure, refuse_errors, start, sysbench

LIMIT_SECONDS = (240, 600)
TABLES, ROWS, SECONDS, THREADS = (10, 100_000, 60, 16) if FULL else (4, 10_000, 30, 16)
GAP_GOAL_MS = 100
# A transaction that takes longer has met a lock that nobody gives back.
HANG_MS = 15_000


def main(t):
    # One SQL node, so that the probe sees what sysbench sees.
    with Cluster(t) as cluster:
        host, port = cluster.sql
        batch("CREATE DATABASE sbtest", host=host, port=port)
        size = {"tables": TABLES, "table_size": ROWS}
        sysbench("oltp_read_write", "prepare", cluster.sql, threads=4, limit=600, **size)
        probe = Probe(cluster.sql)
        probe.start()
        log = t.directory / "sysbench.log"
        load = start("oltp_read_write", cluster.sql, log, threads=THREADS, seconds=SECONDS, extra=["--report-interval=5"], **size)
        t.cleanup.callback(end, load)
        began = time.monotonic()
        kills = []
        for number, node in enumerate(cluster.data_ids()):
            with t.case(f"data node {node} is killed and joins again under load"):
                # Spread over the run: the first kill after a few seconds of undisturbed load.
                at = began + SECONDS * (0.15 + 0.4 * number)
                while time.monotonic() < at:
                    if load.poll() is not None:
                        raise Failure(f"sysbench ended early:\n{log.read_text()[-3000:]}")
                    time.sleep(0.05)
                commits = probe.commits
                cluster.kill(node)
                kills.append((node, time.monotonic()))
                cluster.wait_down(node)
                check(probe.commits > commits or not probe.errors, f"no commit since the kill: {probe.errors[-3:]}")
                cluster.restart(node)
                seconds = cluster.wait_up(node)
                t.say(f"data node {node} was up again {seconds:.1f} s after its restart")
        with t.case("sysbench ends without a fatal error"):
            code = load.wait(SECONDS + 60)
            text = log.read_text(errors="replace")
            refuse_errors(text)
            check(code == 0, f"sysbench ended with {code}:\n{text[-3000:]}")
            t.say(f"sysbench: {figure(text, 'transactions'):.0f} transactions/s, p95 {figure(text, '95th percentile'):.1f} ms")
        with t.case("no transaction hangs"):
            longest = figure(text, "max")
            t.say(f"sysbench: the longest transaction took {longest:.0f} ms")
            check(longest < HANG_MS, f"a transaction took {longest:.0f} ms")
        with t.case("every update of the probe is there, and it saw no error"):
            value = probe.end()
            t.say(f"probe: {probe.commits} commits, errors {probe.errors[:5]}")
            check(value == probe.commits, f"{probe.commits} updates were acknowledged, the row counts {value}")
            check(not probe.errors, f"{len(probe.errors)} errors: {probe.errors[:5]}")
        longest = max(probe.gaps)[0] * 1000
        for node, when in kills:
            after = max((gap for gap, at in probe.gaps if when - 0.05 <= at <= when + 15), default=0) * 1000
            t.say(f"longest gap between commits after killing data node {node}: {after:.0f} ms")
        met = "met" if longest < GAP_GOAL_MS else "missed"
        t.say(f"longest gap between two successful commits: {longest:.0f} ms (goal: under {GAP_GOAL_MS} ms, {met})")
        with t.case("all nodes are alive"):
            cluster.check_all_alive()


if __name__ == "__main__":
    scenario_main(main)
