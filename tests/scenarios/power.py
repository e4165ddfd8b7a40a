"""All processes of a cluster with a directory are killed at once, amid transfers, and it is started again: everything that was acknowledged is there.

In class `disk` nothing acknowledged is lost; in class `replicated` only the last tenths of a second, and what is left is of one moment; after an orderly
end nothing is, whatever the class. So it is when one node group dies and the other lives: all go back to the disks, by themselves. A single node that
was killed comes back with what is on its disk. FULL: 50 rounds of the first.
"""

import json
import os
import re
import shutil
import signal
import time

from lib.bank import Bank, check_not_durable
from lib.harness import BINARY, FULL, Failure, alive, check, run, scenario_main, wait_until

LIMIT_SECONDS = (300, 1800)
ROUNDS = 50 if FULL else 4
# What class `replicated` may lose: a global checkpoint each 0.1 s, and what a loaded machine adds.
LOST_SECONDS = 2.0


def main(t):
    with Bank(t) as bank:
        with t.case(f"class disk: nothing is lost by {ROUNDS} kills of all processes"):
            for _ in range(ROUNDS):
                bank.work(0.5)
                bank.kill_all()
                begin = time.monotonic()
                bank.start()
                t.say(f"serves again after {time.monotonic() - begin:.1f} s, {len(bank.acknowledged)} transfers so far")
                bank.check_nothing_lost()
                check_not_durable(bank.cluster)
        with t.case("the starts have read checkpoints, and each file of them is whole"):
            bank.work(1.0)
            wait_until(lambda: all(bank.checkpoints(node) for node in (1, 2)), 60, "each node has a checkpoint")
            bank.kill_all()
            files = [file for node in (1, 2) for file in bank.checkpoints(node)]
            _, printed = run([BINARY, "inspect", "--brief", *files])
            check("up to epoch" in printed, printed)
            bank.start()
            last = [line for line in bank.cluster.log_of("data-1").splitlines() if "put back" in line][-1]
            check("put back 0 rows from checkpoints" not in last, last)
            bank.check_nothing_lost()
        with t.case("class replicated: what is left is of one moment, shortly before"):
            bank.set_durability("replicated")
            bank.work(1.0)
            moment = bank.kill_all()
            bank.start()
            lost = bank.lost()
            age = max((moment - at for at in lost.values()), default=0)
            t.say(f"{len(lost)} acknowledged transfers lost, the oldest {age * 1000:.0f} ms before the end")
            check(age < LOST_SECONDS, f"{age:.1f} s are lost")
            bank.acknowledged = {n: at for n, at in bank.acknowledged.items() if n not in lost}
        with t.case("an orderly end loses nothing, whatever the class"):
            bank.work(0.5)
            said = bank.end()
            check("without having made everything durable" not in said, said)
            bank.start()
            bank.check_nothing_lost()
    with Bank(t, t.directory / "nodes") as bank:
        with t.case("a node that is killed amid transfers comes back with its own disk, and fetches what has changed"):
            for node, other in ((2, 1), (1, 2), (2, 1)):
                lose_node(t, bank, node, other)
    with Bank(t, t.directory / "lost") as bank:
        with t.case("a disk is lost with its node amid the end of everything: an operator has the rest start, and nothing is lost"):
            lose_disk(t, bank)
        with t.case("the same of a whole cluster: the start waits, says so, and an operator has it go on"):
            bank.cluster.restart(1)
            bank.cluster.wait_up(1)
            bank.work(0.5)
            bank.kill_all()
            shutil.rmtree(bank.directory / "files" / "data-1")
            bank.start(resume_without_node_1)
            bank.cluster.wait_up(1)
            bank.check_nothing_lost()
    with Bank(t, t.directory / "fenced") as bank:
        with t.case("one of two goes on by the arbitrator's word, and its disk lost that with the power: it starts without the other one, by itself"):
            start_without_fenced(t, bank)
    with Bank(t, t.directory / "outlived", durability="replicated", data_nodes=3, replicas=3, workers=1) as bank:
        with t.case("one of three is left, and goes on with all that it has when the others have begun anew"):
            outlive(t, bank)
    with Bank(t, t.directory / "groups", data_nodes=4, workers=1) as bank:
        with t.case("a whole node group dies: all go back to the disks by themselves, and nothing is lost"):
            for dead in ((3, 4), (2, 1)):
                lose_group(t, bank, dead)
        with t.case("class replicated: one node after the other is told to end, and nothing is lost"):
            bank.set_durability("replicated")
            end_by_signal(t, bank, (1, 3, 4, 2))
        with t.case("the same of all at once, as a machine does that shuts down"):
            end_by_signal(t, bank, (1, 2, 3, 4), at_once=True)


def lose_node(t, bank, node, other):
    cluster = bank.cluster
    bank.work(1.0)
    cluster.kill(node)
    cluster.wait_down(node)
    bank.goes_on()
    cluster.restart(node)
    seconds = cluster.wait_up(node)
    bank.goes_on()
    bank.close_books()
    filled = re.findall(r"was filled in \d+ ms: (\d+) rows fetched, (\d+) unchanged", cluster.log_of(f"data-{node}"))
    check(filled, cluster.log_of(f"data-{node}"))
    fetched, unchanged = (sum(int(rows) for rows in of_worker) for of_worker in zip(*filled))
    t.say(f"data node {node} is whole again after {seconds:.1f} s: {fetched} rows fetched, {unchanged} unchanged")
    check(unchanged > 0, "what is on its disk is of use")
    # What it has alone now is what it was filled with.
    cluster.kill(other)
    cluster.wait_down(other)
    bank.check_nothing_lost()
    bank.check_visits()
    cluster.restart(other)
    cluster.wait_up(other)


def lose_disk(t, bank):
    bank.work(0.5)
    cluster = bank.cluster
    pids = [cluster.data_pid(node) for node in (1, 2)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in pids), 10, "both data nodes are gone")
    bank.close_books()
    shutil.rmtree(bank.directory / "files" / "data-2")
    cluster.restart(1)
    wait_until(lambda: "waits for data node 2" in json.dumps(cluster.status()), 20, "data node 1 says for whom it waits")
    code, said = cluster.apus("cluster", "resume", "--force", "--confirm", "abandon data node 1", ok=False)
    check(code != 0 and "nothing was done" in said, said)
    _, said = cluster.apus("cluster", "resume", "--force", "--confirm", "abandon data node 2")
    check("In cluster" in said and "went on, from view" in said, said)
    cluster.wait_up(1)
    bank.check_nothing_lost()
    cluster.restart(2)
    t.say(f"data node 2 is whole again {cluster.wait_up(2):.1f} s after it came with an empty disk")
    cluster.kill(1)
    cluster.wait_down(1)
    bank.check_nothing_lost()


def start_without_fenced(t, bank):
    """What the disk of data node 1 has not kept when its power fails is what it is given back without: the view that it went on in."""
    bank.work(0.5)
    bank.close_books()
    cluster = bank.cluster
    disk, before = bank.directory / "files" / "data-1", t.directory / "data-1-before"
    shutil.copytree(disk, before)
    cluster.kill(2)
    cluster.wait_down(2)
    cluster.kill(1)
    shutil.rmtree(disk)
    before.rename(disk)
    cluster.restart(1)
    t.say(f"data node 1 serves {cluster.wait_up(1):.1f} s after its start")
    text = "begins from the disks without data node 2, fenced by management node 1"
    check(text in cluster.log_of("data-1"), cluster.node_logs())
    check(text in json.dumps(cluster.status()), "apus status says whom the start went on without")
    bank.check_nothing_lost()
    bank.work(0.5)
    cluster.restart(2)
    cluster.wait_up(2)
    bank.close_books()
    check(text not in json.dumps(cluster.status()), "nobody is missing any more")
    bank.check_nothing_lost()


def outlive(t, bank):
    """Without the file that is not synced a node is as after a loss of power: it cannot tell what it had accepted."""
    bank.work(0.5)
    cluster = bank.cluster
    pids = [cluster.data_pid(node) for node in (1, 2)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in pids), 10, "two data nodes are gone")
    for node in (1, 2):
        (bank.directory / "files" / f"data-{node}" / "view").unlink()
    wait_until(lambda: "frozen" in json.dumps(cluster.status()), 20, "data node 3 is frozen")
    cluster.restart(1)
    wait_until(lambda: "data node 1 began anew" in json.dumps(cluster.status()), 20, "data node 3 says for whom it waits")
    cluster.restart(2)
    for node in (3, 1, 2):
        cluster.wait_up(node)
    check("goes on without data nodes 1, 2" in cluster.log_of("data-3"), cluster.node_logs())
    bank.close_books()
    bank.check_nothing_lost()


def resume_without_node_1(cluster):
    def waits():
        code, said = cluster.apus("status", "--json", seconds=20, ok=False)
        nodes = json.loads(said)["nodes"] if code == 0 else []
        return any(node["id"] == 2 and "waits for data node 1" in json.dumps(node) for node in nodes)

    wait_until(waits, 60, "data node 2 says for whom it waits")
    cluster.apus("cluster", "resume", "--force", "--confirm", "abandon data node 1")


def lose_group(t, bank, dead):
    bank.work(0.5)
    cluster, pids = bank.cluster, bank.cluster.everyone()
    for node in dead:
        os.kill(cluster.data_pid(node), signal.SIGKILL)
    begin = time.monotonic()
    left = next(node for node in cluster.data_ids() if node not in dead)
    wait_until(lambda: "frozen" in json.dumps(cluster.status()), 20, "the other group is frozen")
    check(alive(pids[f"data {left}"]), f"data node {left} has ended")
    for node in dead:
        cluster.restart(node)
    for node in cluster.data_ids():
        cluster.wait_up(node)
    t.say(f"whole again {time.monotonic() - begin:.1f} s after the death of data nodes {dead[0]} and {dead[1]}")
    bank.close_books()
    check("the whole cluster starts again from the disks" in cluster.log_of(f"data-{left}"), cluster.node_logs())
    bank.check_nothing_lost()


def end_by_signal(t, bank, nodes, at_once=False):
    """One SIGTERM for each; the first ones leave, the last full copies of their groups have all saved, and who is frozen then has."""
    bank.work(0.5)
    cluster = bank.cluster
    pids = {node: cluster.data_pid(node) for node in nodes}
    begin = time.monotonic()
    for node, pid in pids.items():
        os.kill(pid, signal.SIGTERM)
        if not at_once:
            wait_until(lambda pid=pid: not alive(pid), 20, f"data node {node} has ended")
    try:
        wait_until(lambda: not any(alive(pid) for pid in pids.values()), 20, "all have ended")
    except Failure as failure:
        raise Failure(f"{failure}\n{cluster.node_logs()}") from failure
    t.say(f"all have ended {time.monotonic() - begin:.1f} s after the first signal")
    bank.close_books()
    for node in nodes:
        cluster.restart(node)
    for node in nodes:
        cluster.wait_up(node)
    bank.check_nothing_lost()


if __name__ == "__main__":
    scenario_main(main)
