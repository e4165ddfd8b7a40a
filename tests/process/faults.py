"""The faults that are done to real processes: what, to whom, and what is expected of the cluster.

A fault is a function of a round that does the damage at once; undoing it is the same for all (Rig.mend, Rig.wait_whole). Round
n takes other victims than round n + 1.
"""

import dataclasses
import signal
import subprocess
import sys
import threading
import time
from typing import Callable, Optional

from lib.harness import check, die_with_parent, end, wait_until

from .threads import StoppedThread


@dataclasses.dataclass
class Fault:
    key: str
    title: str
    strike: Callable
    # Done before, so long that the cluster has settled on it.
    prepare: Optional[Callable] = None
    # Data nodes that the cluster is right to remove; 0 where each removal is a false alarm.
    removed: int = 1
    # Fewer are right, too.
    or_fewer: bool = False
    # (p99, max) of the gap in ms beyond the control's; None for faults that have no goal of their own.
    goal: Optional[tuple] = None
    seconds: float = 1.5
    # Rounds, in units of the table's number of rounds.
    weight: float = 1.0
    proxied: bool = False
    mgmt_nodes: int = 1
    # (groups, replicas)
    shape: tuple = (2, 2)
    # MiB of each data node.
    memory: int = 512
    # Each data node ends once.
    all_end: bool = False
    # The status cannot be asked while it lasts.
    blind: bool = False
    # Nobody is served before it is mended.
    freezes: bool = False
    # Takes long, so it is measured only when it is named.
    only_asked: bool = False


# How long a prepared fault gets to be noticed, in seconds.
SETTLE = 2.0
CRASH = (5, 20)
SILENCE = (100, 100)
RESET = (20, 20)


class Round:
    def __init__(self, rig, number):
        self.rig, self.number = rig, number
        self.president = rig.data[rig.president()]
        self.arbitrator = rig.find_arbitrator()
        self.cleanup = []
        # Names of nodes that the fault is done to: only these may be removed.
        self.touched = set()

    def hit(self, *nodes):
        """Notes whom the fault is done to; returns them."""
        self.touched |= {node.name for node in nodes}
        return nodes

    def nth(self, nodes, step=1):
        nodes = list(nodes)
        return nodes[self.number // step % len(nodes)]

    def junior(self):
        """A data node that is not the president, another in each round."""
        return self.nth(n for n in self.rig.data.values() if n is not self.president)

    def one_per_group(self):
        """A data node of each group; all combinations in turn."""
        replicas = self.rig.replicas
        data = list(self.rig.data.values())
        groups = [data[i : i + replicas] for i in range(0, len(data), replicas)]
        return [self.nth(group, step=replicas**n) for n, group in enumerate(groups)]

    def others(self, node):
        return [n.host for n in self.rig.data.values() if n is not node]

    def finish(self):
        for undo in self.cleanup:
            undo()


def kill_all(r, nodes):
    for node in r.hit(*nodes):
        node.signal(signal.SIGKILL)
    for node in nodes:
        node.process.wait(10)


def kill_junior(r):
    kill_all(r, [r.junior()])


def kill_in_turn(r):
    kill_all(r, [r.nth(r.rig.data.values())])


def kill_president(r):
    kill_all(r, [r.president])


def end_junior(r):
    """As in a planned restart."""
    (node,) = r.hit(r.junior())
    node.process.terminate()
    node.process.wait(20)


def kill_two(r):
    kill_all(r, r.one_per_group())


def kill_in_take_over(r):
    """The second dies when the first has just been noticed."""
    first, second = r.one_per_group()[:2] if r.number % 2 else r.one_per_group()[1::-1]
    kill_all(r, [first])
    kill_all(r, [second])


def stop_junior(r):
    (node,) = r.hit(r.junior())
    node.signal(signal.SIGSTOP)


def stop_president(r):
    (node,) = r.hit(r.president)
    node.signal(signal.SIGSTOP)


def unplug(r):
    (node,) = r.hit(r.nth(r.rig.data.values()))
    node.host.unplug()


def deaf_junior(r):
    (node,) = r.hit(r.junior())
    node.host.deaf_to(r.others(node))


def deaf_president(r):
    (node,) = r.hit(r.president)
    node.host.deaf_to(r.others(node))


def pair(r):
    """Two data nodes of different groups, in all combinations; either may be removed."""
    a, b = r.hit(*r.one_per_group()[:2])
    return (a, b) if r.number % 2 else (b, a)


def one_way_pair(r):
    a, b = pair(r)
    a.host.deaf_to([b.host])


def held_one_way(r):
    a, b = pair(r)
    r.rig.proxy.tell(f"cut {a.name} {b.name}")


def reset_pair(r):
    """Links go on over new connections: nobody may be removed."""
    a, b = r.one_per_group()[:2] if r.number % 2 else r.one_per_group()[1::-1]
    r.rig.proxy.tell(f"reset {a.name} {b.name}")


def reset_both(r):
    """Of a group of two."""
    a, b = r.hit(*r.rig.data.values())
    r.rig.proxy.tell(f"reset {a.name} {b.name}")


def each_direction(r, command):
    for a in r.rig.data.values():
        for b in r.rig.data.values():
            if a is not b:
                r.rig.proxy.tell(command.format(a=a.name, b=b.name))


def delay_all(r):
    each_direction(r, "delay {a} {b} 3 4")


def narrow_all(r):
    each_direction(r, "rate {a} {b} 2000000")


def halves(r):
    """Each side has a member of every group, so the arbitrator decides."""
    side = r.one_per_group()
    rest = [n for n in r.rig.data.values() if n not in side]
    r.hit(*side, *rest)
    r.rig.network.part([n.host for n in side], [n.host for n in rest])


def part_groups(r):
    """Each side lacks a group, so nobody goes on, and all meet again. Longer than a silence is waited out, so that they are frozen.
    Connections come back one after the other, some seconds apart, so that up to two may have to give way."""
    data, replicas = list(r.rig.data.values()), r.rig.replicas
    at = r.number % (len(data) // replicas) * replicas
    side = data[at : at + replicas]
    rest = [n for n in data if n not in side]
    r.hit(*side, *rest)
    r.rig.network.part([n.host for n in side], [n.host for n in rest])


def kill_mgmt(r):
    kill_all(r, [r.arbitrator])


def lose_mgmt(r):
    """The only management node is down before anything else happens: the view names a tie-breaker."""
    kill_all(r, [r.arbitrator])
    time.sleep(SETTLE)


def kill_two_of_three(r):
    """Within one change of the view. The third is not removed, but frozen until one of them is back."""
    r.hit(*r.rig.data.values())
    kill_all(r, [r.nth(n for n in r.rig.data.values() if n is not r.president), r.president])


def rejoin_interrupted(r):
    """Of three replicas one is down, comes back, and is being filled."""
    first = r.junior()
    r.second = r.nth(n for n in r.rig.data.values() if n is not first)
    kill_all(r, [first])
    time.sleep(SETTLE)
    r.rig.start(first)
    wait_until(lambda: r.rig.states().get(first.number) in ("recovering", "up"), 20, f"{first.name} joins")


def kill_second(r):
    """A full copy dies before that is over."""
    kill_all(r, [r.second])


BIG_ROWS = 1_000_000


def fill_big(r):
    """A table of a million rows, left there for later rounds."""
    with r.rig.connect() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS big")
        cursor.execute("CREATE TABLE IF NOT EXISTS big.t (id INT PRIMARY KEY, v BIGINT NOT NULL)")
        cursor.execute("SELECT COUNT(*) FROM big.t")
        count = cursor.fetchone()[0]
        if count == 0:
            cursor.execute("INSERT INTO big.t VALUES " + ", ".join(f"({i}, 0)" for i in range(1000)))
            count = 1000
        while count < BIG_ROWS:
            more = min(count, BIG_ROWS - count, 100_000)
            cursor.execute(f"INSERT INTO big.t SELECT id + {count}, v FROM big.t WHERE id < {more}")
            count += more


def in_background(r, work):
    """The window goes on while it works; the round waits for it and fails with it."""
    failures = []

    def guarded():
        try:
            work()
        except Exception as failure:  # whatever it is, the round has to hear of it
            failures.append(failure)

    thread = threading.Thread(target=guarded)
    thread.start()

    def finish():
        thread.join(120)
        check(not thread.is_alive() and not failures, f"in the background: {failures or 'not done'}")

    r.cleanup.append(finish)


def change_all(r):
    """One statement changes them all, in one transaction."""

    def change():
        with r.rig.connect() as cursor:
            changed = cursor.execute("UPDATE big.t SET v = v + 1")
            check(changed == BIG_ROWS, f"{changed} rows changed")

    in_background(r, change)


def roll(r):
    """SIGTERM to one data node after the other, each as soon as the one before is full again. Not in a thread of its own: a process that a
    thread has started gets its parent's death signal when the thread ends."""
    for node in r.hit(*r.rig.data.values()):
        node.process.terminate()
        node.process.wait(20)
        r.rig.start(node)
        wait_until(lambda node=node: node.is_ready() and r.rig.states().get(node.number) == "up", 60, f"{node.name} is full again")


def stop_mgmt(r):
    (node,) = r.hit(r.arbitrator)
    node.signal(signal.SIGSTOP)


def without_arbitrator(r):
    stop_mgmt(r)
    time.sleep(SETTLE)


def kill_sql(r):
    kill_all(r, [r.nth(r.rig.sql)])


def stick_worker(r):
    """A data worker hangs while the other threads of its node go on: nobody else can tell, the node's own watchdog ends it."""
    (node,) = r.hit(r.junior())
    thread = StoppedThread(node.pid, "worker-0")

    def ended():
        wait_until(thread.has_ended, 20, f"{node.name} ends because its worker is stuck")
        (crash,) = r.rig.directory.glob(f"crash-{node.number}-*.txt")
        report = crash.read_text(errors="replace")
        check("worker 0 has been in one turn for" in report and "== worker 0, which is stuck" in report, report[:2000])
        crash.unlink()

    r.cleanup.append(ended)


def busy_loops(count):
    """Processes that each take all of a core that they get; `end` ends them."""
    command = [sys.executable, "-c", "while True: pass"]
    return [subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent) for _ in range(count)]


def starve(r):
    """Four busy loops on two cores: nobody may be taken for dead because it is slow."""
    r.cleanup += [lambda loop=loop: end(loop) for loop in busy_loops(4)]


FAULTS = [
    Fault("kill-data", "data node killed (kill -9)", kill_junior, goal=CRASH, weight=3),
    Fault("kill-president", "president killed", kill_president, goal=CRASH),
    Fault("end-data", "data node told to end (SIGTERM)", end_junior, goal=CRASH),
    Fault("kill-two", "two nodes of different groups killed at once (coordinator and participant)", kill_two, removed=2, goal=CRASH),
    Fault("kill-take-over", "second node killed while the first is taken over", kill_in_take_over, removed=2, goal=CRASH),
    Fault("stop-data", "data node hangs (SIGSTOP)", stop_junior, goal=SILENCE),
    Fault("stop-president", "president hangs (SIGSTOP)", stop_president, goal=SILENCE),
    Fault("cut", "data node's cable cut", unplug, goal=SILENCE),
    Fault("one-way", "data node deaf: hears no other, is heard by all", deaf_junior, goal=SILENCE),
    Fault("one-way-president", "president deaf: hears no other, is heard by all", deaf_president, goal=SILENCE),
    Fault("one-way-pair", "one node deaf to one other (packets dropped)", one_way_pair, goal=SILENCE),
    Fault("held-one-way", "one direction between two nodes held (proxy)", held_one_way, goal=SILENCE, proxied=True),
    Fault("reset-pair", "connections between two nodes reset (proxy)", reset_pair, removed=0, goal=RESET, proxied=True),
    Fault("halves", "partition in halves, arbitration", halves, removed=2, goal=SILENCE),
    Fault("groups", "partition between the node groups: nobody goes on, and all do when it is mended", part_groups, removed=2, or_fewer=True, seconds=13,
          weight=0.2, freezes=True),
    Fault("kill-mgmt", "the only management node killed", kill_mgmt, removed=0, goal=CRASH, blind=True),
    Fault("stop-mgmt", "the only management node hangs (SIGSTOP)", stop_mgmt, removed=0, goal=CRASH, blind=True),
    Fault("kill-arbitrator", "one of two management nodes killed, the arbitrator", kill_mgmt, removed=0, goal=CRASH, mgmt_nodes=2),
    Fault("halves-second", "partition in halves after the arbitrator, one of two management nodes, hangs", halves, without_arbitrator,
          removed=2, goal=SILENCE, mgmt_nodes=2),
    Fault("no-mgmt-kill", "1 x 2, the only management node down, then the node that does not break the tie killed", kill_junior, lose_mgmt, goal=SILENCE,
          shape=(1, 2), blind=True),
    Fault("no-mgmt-freeze", "1 x 2, the only management node down, then the node that breaks the tie killed: the other one freezes until either is back",
          kill_president, lose_mgmt, shape=(1, 2), blind=True, freezes=True),
    Fault("no-mgmt-reset", "1 x 2, the only management node down, then the connections between the data nodes reset (proxy)", reset_both, lose_mgmt,
          removed=0, goal=CRASH, shape=(1, 2), blind=True, proxied=True),
    Fault("kill-two-of-three", "1 x 3, two nodes killed at once, the president one of them", kill_two_of_three, removed=2, shape=(1, 3), freezes=True),
    Fault("kill-rejoin", "1 x 3, a second node killed while the first is being filled again", kill_second, rejoin_interrupted, removed=2, goal=CRASH,
          shape=(1, 3)),
    Fault("big-commit", "1 x 2, one statement changes a million rows", change_all, fill_big, removed=0, goal=(50, 50), seconds=15, weight=0.5,
          shape=(1, 2), memory=2048),
    Fault("rolling", "every data node told to end and started again, one after the other without a pause", roll, removed=4, goal=SILENCE, weight=0.5,
          all_end=True),
    Fault("stuck-worker", "a worker of a data node hangs, its heartbeats go on (ptrace)", stick_worker, seconds=9, weight=0.5),
    Fault("kills", "one data node after the other killed (kill -9), round after round", kill_in_turn, goal=CRASH, only_asked=True),
    Fault("kill-sql", "SQL node killed", kill_sql, removed=0, goal=CRASH),
    Fault("delay", "3 to 7 ms between all data nodes (proxy)", delay_all, removed=0, proxied=True, weight=0.6, seconds=2),
    Fault("narrow", "2 MB/s between all data nodes (proxy)", narrow_all, removed=0, proxied=True, weight=0.6, seconds=2),
    Fault("starve", "4 busy loops on all cores", starve, removed=0, weight=0.4, seconds=6),
]
BY_KEY = {fault.key: fault for fault in FAULTS}
