"""A data node that is slow and not dead is named, stays as long as nobody says otherwise, and leaves when the operator's setting wants it.

One group of three replicas. The data worker of one node stands still for 120 ms of each 130, its heartbeats go on: everything that has a replica there waits for it.
A client that commits all the time hears no error, and is as fast as before once the node has left.
"""

import time

from lib.cluster import Cluster
from lib.harness import alive, check, check_equal, scenario_main, wait_until
from lib.mariadb import batch
from lib.probe import Probe
from process.threads import SlowThread

LIMIT_SECONDS = (180, 180)
RUNS, STANDS = 0.010, 0.120
# A node is slow when it has been so for 5 s (`SLOW_FOR_NS`); the rest is the average's, and the machine's.
NAMED_SECONDS = 30
# What the node measures is about half of `STANDS`.
EJECT_MS = 25
CALM_SECONDS = 2


def slow_nodes(cluster):
    return [n["id"] for n in cluster.status()["nodes"] if n.get("slow")]


def states(cluster):
    return {n["id"]: n["state"] for n in cluster.status()["nodes"]}


def rate(probe):
    """Commits per second, in the next seconds. A commit that waits is followed by many that do not, so that a median would tell of those."""
    begin, before = time.monotonic(), probe.commits
    wait_until(lambda: time.monotonic() - begin > CALM_SECONDS and probe.commits > before, 30, "commits to measure")
    return (probe.commits - before) / (time.monotonic() - begin)


def main(t):
    with Cluster(t, data_nodes=3, replicas=3) as cluster:
        host, port = cluster.sql
        batch("CREATE DATABASE sbtest", host=host, port=port)
        probe = Probe(cluster.sql)
        probe.start()
        calm = rate(probe)
        # Not the president: of ids in order of their start it is the first.
        node = cluster.data_ids()[-1]
        pid = cluster.data_pid(node)
        slow = SlowThread(pid, "worker-0", RUNS, STANDS)
        slow.start()
        t.cleanup.callback(slow.ended.set)
        with t.case("a node whose worker is slow is named, and stays"):
            wait_until(lambda: slow_nodes(cluster) == [node], NAMED_SECONDS, f"apus status names node {node}")
            code, text = cluster.apus("status")
            check("slow: signals wait" in text, text)
            check(set(states(cluster).values()) == {"up"}, f"{states(cluster)}")
            hurt = rate(probe)
            check(hurt < calm / 2, f"{hurt:.0f} commits per second, {calm:.0f} before: the node is not slow")
            check(set(states(cluster).values()) == {"up"}, f"{states(cluster)}")
            t.say(text[text.index("slow: "):].splitlines()[0] + f"; {hurt:.0f} commits per second, {calm:.0f} before")
        with t.case("with the setting eject_slow_ms it leaves, and its clients hear no error"):
            cluster.apus("cluster", "set", f"eject_slow_ms={EJECT_MS}")
            cluster.wait_down(node)
            wait_until(lambda: not alive(pid), 30, "its process has ended")
            check(f"leaves, as eject_slow_ms={EJECT_MS} wants it" in cluster.log_of(f"data-{node}"), cluster.node_logs())
            slow.end()
            free = rate(probe)
            check(free > calm / 2, f"{free:.0f} commits per second, {calm:.0f} before")
            t.say(f"{free:.0f} commits per second")
        with t.case("started again it is a member like the others"):
            cluster.restart(node)
            cluster.wait_up(node)
            again = rate(probe)
            check(again > calm / 2, f"{again:.0f} commits per second, {calm:.0f} before")
            check_equal((slow_nodes(cluster), set(states(cluster).values())), ([], {"up"}), "slow nodes, states")
        with t.case("no commit failed, and every one is there"):
            value = probe.end()
            check(not probe.errors, f"{len(probe.errors)} errors: {probe.errors[:5]}")
            check_equal(value, probe.commits, "the row counts")
        cluster.check_all_alive()


if __name__ == "__main__":
    scenario_main(main)
