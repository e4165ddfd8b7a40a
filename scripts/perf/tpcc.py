#!/usr/bin/env python3
"""TPC-C by `apus bench tpcc`: Apus against MariaDB and MySQL, in the same run.

All servers run all the time; each is loaded once and measured `--rounds` times in turn, forwards and backwards, and the medians are compared. InnoDB is
measured with innodb_flush_log_at_trx_commit 0 and 1. At the end the consistency conditions must hold on every server.

    scripts/perf/tpcc.py                                         print the table
    scripts/perf/tpcc.py --write docs/performance.md             and put it between that file's markers
    scripts/perf/tpcc.py --peers '' --rounds 1 --seconds 5       Apus alone
    scripts/perf/tpcc.py --realtime                              on a machine that does other things, too: on a busy one each message between processes
                                                                 waits for its turn, which costs Apus, whose statements take more of them, half of its rate
"""

import argparse
import json
import pathlib
import statistics
import sys

import peers  # noqa: E402  (puts tests/ on the path)
from lib.cluster import Cluster  # noqa: E402
from lib.harness import BINARY, Scenario, run  # noqa: E402
from lib.mariadb import batch  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warehouses", type=int, default=4)
    parser.add_argument("--terminals", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=15, help="of one measurement (15)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="mariadb,mysql", help="comma-separated (mariadb,mysql)")
    parser.add_argument("--realtime", action="store_true", help="servers and terminals before whatever else runs here (root)")
    parser.add_argument("--write", metavar="FILE")
    return parser.parse_args()


class Side:
    def __init__(self, name, address, flush=None):
        self.name, self.address, self.flush, self.found = name, address, flush, []

    def bench(self, args, phases, seconds):
        host, port = self.address
        command = [BINARY, "bench", "tpcc", f"--host={host}", f"--port={port}", f"--warehouses={args.warehouses}", f"--terminals={args.terminals}",
                   f"--seconds={args.seconds}", f"--phases={phases}", "--json"]
        _, text = run(command, seconds=seconds)
        return json.loads(text.splitlines()[-1])

    def measure(self, args):
        if self.flush is not None:
            batch(f"SET GLOBAL innodb_flush_log_at_trx_commit = {self.flush}", *self.address)
        found = self.bench(args, "run", args.seconds + 120)
        print(f"{self.name}: {found['tpmC']:,.0f} tpmC, aborts {found['aborts']}", file=sys.stderr, flush=True)
        self.found.append(found)

    def median(self, *path):
        def value(found):
            for name in path:
                found = found[name]
            return found

        return statistics.median(map(value, self.found))

    def aborts(self):
        return sum(abort["count"] for found in self.found for abort in found["aborts"])


def table(sides, args):
    kinds = ["new order", "payment", "delivery", "stock level"]
    lines = ["| | tpmC | to Apus | " + " | ".join(f"{kind} p50 / p95 / p99 ms" for kind in kinds) + " | aborts |",
             "|---|---:|---:|" + "---:|" * len(kinds) + "---:|"]
    ours = sides[0].median("tpmC")
    for side in sides:
        times = [" / ".join(f"{side.median('transactions', kind, of):.1f}" for of in ("p50_ms", "p95_ms", "p99_ms")) for kind in kinds]
        rate = side.median("tpmC")
        lines.append(f"| {side.name} | {rate:,.0f} | {rate / ours:.2f} | " + " | ".join(times) + f" | {side.aborts():,} |")
    return lines


def main():
    args = arguments()
    if args.realtime:
        peers.go_first()
    scenario = Scenario("tpcc")
    wanted = [name for name in args.peers.split(",") if name]
    with scenario.cleanup:
        servers = [(name, getattr(peers, name)(scenario)) for name in wanted]
        with Cluster(scenario) as cluster:
            sides = [Side("Apus", cluster.sql)]
            for name, server in servers:
                shown = {"mariadb": "MariaDB", "mysql": "MySQL"}[name]
                sides += [Side(f"{shown}, flush {flush}", ("127.0.0.1", server.port), flush) for flush in (0, 1)]
            servers = [side for side in sides if side.flush != 1]
            for side in servers:
                side.bench(args, "load", 900)
            for number in range(args.rounds):
                for side in sides if number % 2 == 0 else reversed(sides):
                    side.measure(args)
            for side in servers:
                side.bench(args, "check", 900)
    command = " ".join(["scripts/perf/tpcc.py", *sys.argv[1:]])
    text = "\n".join([
        f"{peers.machine()}. {peers.SETTINGS}.",
        f"{args.warehouses} warehouses, {args.terminals} terminals without think time, {args.seconds} s per measurement, medians of {args.rounds} in "
        f"alternation; servers and terminals share the machine. All consistency conditions held on all servers. Command: `{command}`",
        "",
        *table(sides, args),
    ])
    if args.write:
        peers.put(pathlib.Path(args.write), "tpcc table", text)
    print(text)


if __name__ == "__main__":
    main()
