"""`apus bench tpcc` on one warehouse while a data node is killed with -9 and comes back: the consistency conditions hold, and a
broken one is found."""

import json
import time

from lib.cluster import Cluster
from lib.harness import BINARY, FULL, Failure, check, end, scenario_main, spawn
from lib.mariadb import batch

LIMIT_SECONDS = (240, 900)
SECONDS, TERMINALS = (120, 16) if FULL else (12, 8)


def report(log):
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("{")]
    check(lines, f"apus bench tpcc reported nothing:\n{log.read_text(errors='replace')[-2000:]}")
    return json.loads(lines[-1])


def main(t):
    with Cluster(t) as cluster:
        with t.case("a warehouse is loaded, and all twelve conditions hold of it"):
            _, text = cluster.apus("bench", "tpcc", "--phases=load,check", "--json", seconds=120)
            check('"conditions_held":12' in text, f"not twelve conditions held:\n{text[-2000:]}")
        with t.case("terminals go on while a data node is killed and comes back, and the conditions hold"):
            log = t.directory / "tpcc.log"
            command = [BINARY, "bench", "tpcc", "--phases=run,check", "--warmup=0", f"--seconds={SECONDS}", f"--terminals={TERMINALS}", "--json"]
            with open(log, "wb") as out:
                load = spawn(command, stdout=out, stderr=out, env=cluster.environment)
            t.cleanup.callback(end, load)
            # A moment in the middle of the run.
            killed = time.monotonic() + SECONDS / 3
            while time.monotonic() < killed:
                if load.poll() is not None:
                    raise Failure(f"it ended early:\n{log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.05)
            cluster.kill(2)
            cluster.wait_down(2)
            cluster.restart(2)
            cluster.wait_up(2)
            code = load.wait(SECONDS + 120)
            text = log.read_text(errors="replace")
            check(code == 0, f"it ended with {code}:\n{text[-3000:]}")
            found = report(log)
            t.say(f"{found['tpmC']:.0f} tpmC, longest time between two commits of a terminal {found['longest_gap_ms']} ms, aborts {found['aborts']}")
            check(found["conditions_held"] == 11 and found["tpmC"] > 0, text[-3000:])
            check(all(of["committed"] for of in found["transactions"].values()), f"a kind never committed: {found}")
        with t.case("a broken condition is found"):
            host, port = cluster.sql
            batch("UPDATE warehouse SET w_ytd = w_ytd + 1", host=host, port=port, database="apus_tpcc")
            code, text = cluster.apus("bench", "tpcc", "--phases=check", seconds=120, ok=False)
            check(code != 0 and "condition 1 " in text and "condition 8 " in text, f"ended with {code}:\n{text[-2000:]}")


if __name__ == "__main__":
    scenario_main(main)
