#!/usr/bin/env python3
"""Writes of sysbench with a log on disk: Apus with commits of class `replicated` and `disk`, MariaDB and MySQL with innodb_flush_log_at_trx_commit 0 and 1, in the same run.

All three servers run all the time. Each cell (workload, clients) is measured on all six, `--rounds` times, forwards and backwards, and medians are compared. What is set on a server is
changed before each measurement. Rows are drawn evenly (`--rand-type=uniform`). Before each cell of oltp_delete the tables are filled anew, and its measurements end together with a quarter of the
rows drawn, or after `--time`: so at most one delete in eight, over a cell, finds its row gone.

    scripts/perf/writes.py                                             print the tables
    scripts/perf/writes.py --time 10 --write docs/performance.md       the long form, put between that file's markers
    scripts/perf/writes.py --workloads oltp_insert --clients 16
    scripts/perf/writes.py --peers '' --rounds 1                       Apus alone
"""

import argparse
import itertools

import compare
import native  # (puts tests/ on the path)
import peers
from lib.cluster import Cluster
from lib.mariadb import batch
from lib.sysbench import figure, sysbench

WORKLOADS = ["oltp_insert", "oltp_update_non_index", "oltp_update_index", "oltp_write_only", "oltp_delete"]
CLASSES = ["replicated", "disk"]
# sysbench takes the time in seconds otherwise: two short runs would delete the same rows.
SEEDS = itertools.count(1)
SHOWN = {"mariadb": "MariaDB", "mysql": "MySQL"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=int, default=2, help="seconds per measurement (2)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements per cell and server; medians count (3)")
    parser.add_argument("--clients", default="1,16,128", help="comma-separated (1,16,128)")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="comma-separated (all five)")
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--table-size", type=int, default=100_000)
    parser.add_argument("--peers", default="mariadb,mysql", help="comma-separated (mariadb,mysql)")
    parser.add_argument("--write", metavar="FILE", help="put the tables between the markers of this file")
    return parser.parse_args()


class Side(compare.Side):
    """A server as it is set for one column."""

    def __init__(self, name, address, set_it):
        super().__init__(name, address)
        self.set_it = set_it

    def measure(self, workload, clients, args):
        """(transactions per second, 99th percentile in ms)."""
        self.set_it()
        extra = ["--rand-type=uniform", "--percentile=99", f"--rand-seed={next(SEEDS)}"]
        if workload == "oltp_delete":
            extra.append(f"--events={args.tables * args.table_size // (4 * args.rounds * len(CLASSES))}")
        text = sysbench(workload, "run", self.address, seconds=args.time, limit=args.time + 120, tables=args.tables, table_size=args.table_size, threads=clients, extra=extra)
        return figure(text, "transactions"), figure(text, "99th percentile")


def of_apus(cluster):
    for name in CLASSES:
        yield Side(f"Apus, {name}", cluster.sql, lambda name=name: cluster.apus("cluster", "set", f"durability={name}"))


def of_innodb(name, address):
    for flush in (0, 1):
        yield Side(f"{SHOWN[name]}, flush {flush}", address, lambda flush=flush: batch(f"SET GLOBAL innodb_flush_log_at_trx_commit = {flush}", *address))


def servers(sides):
    """One side of each server: those that share an address share their tables."""
    return list({side.address: side for side in sides}.values())


def cells(sides, args):
    """[(workload, clients, {side's name: (per second, ms)})]."""
    found = []
    for workload in args.workloads.split(","):
        for clients in map(int, args.clients.split(",")):
            if workload == "oltp_delete":
                for side in servers(sides):
                    side.refill(args)
            found.append((workload, clients, compare.cell(sides, workload, clients, args)))
            print(*found[-1], flush=True)
    return found


def table(found, place, digits):
    """Transactions per second (place 0) or milliseconds (1) of all cells."""
    names = list(found[0][2])
    yield f"| | clients | {' | '.join(names)} |"
    yield "|---|---:|" + "---:|" * len(names)
    for workload, clients, medians in found:
        figures = (compare.show(medians[name] and medians[name][place], digits) for name in names)
        yield f"| {workload} | {clients} | {' | '.join(figures)} |"


def main():
    args = arguments()
    scenario = peers.scenario("writes")
    wanted = [name for name in args.peers.split(",") if name]
    with scenario.cleanup:
        native.on_disk(scenario.directory)
        machine = native.Machine(scenario, wanted)
        running = [(name, getattr(peers, name)(scenario)) for name in wanted]
        with Cluster(scenario, dir=scenario.directory / "d") as cluster:
            sides = list(of_apus(cluster))
            for name, server in running:
                sides += of_innodb(name, ("127.0.0.1", server.port))
            for side in servers(sides):
                side.prepare(args)
            found = cells(sides, args)
        text = "\n".join([
            f"{machine}. {peers.INNODB_SETTINGS}; Apus: two data nodes, each row twice, and twice on disk.",
            f"{args.tables} tables of {args.table_size:,} rows, {args.time} s per measurement, medians of {args.rounds} in alternation; servers and load generator share the machine. {peers.command()}",
            "",
            "Transactions per second:",
            "",
            *table(found, 0, 0),
            "",
            "99th percentile, ms:",
            "",
            *table(found, 1, 2),
        ])
    peers.publish(args, "writes table", text)


if __name__ == "__main__":
    main()
