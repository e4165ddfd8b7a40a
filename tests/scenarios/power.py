"""All processes of a cluster with a directory are killed at once, amid transfers, and it is started again: everything that was acknowledged is there.

In class `disk` nothing acknowledged is lost; in class `replicated` only the last tenths of a second, and what is left is of one moment; after an orderly
end nothing is, whatever the class. So it is when one node group dies and the other lives: all go back to the disks, by themselves. FULL: 50 rounds of the first.
"""

import json
import os
import signal
import time

from lib.bank import Bank, check_not_durable
from lib.harness import BINARY, FULL, alive, check, run, scenario_main, wait_until

LIMIT_SECONDS = (240, 1800)
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
    with Bank(t, t.directory / "groups", data_nodes=4, workers=1) as bank:
        with t.case("a whole node group dies: all go back to the disks by themselves, and nothing is lost"):
            for dead in ((3, 4), (2, 1)):
                lose_group(t, bank, dead)


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


if __name__ == "__main__":
    scenario_main(main)
