#!/usr/bin/env python3
"""What changes of a schema cost, and what statements feel of them: Apus and MySQL in the same run.

One of sysbench's tables with `--rows` rows in each server. Beside it run two loads of sysbench's own scripts, point selects and updates of a column without an index, of `--threads` connections each. Then,
one after the other, each as an application would write it, with the algorithm that the server takes by itself:

    ADD INDEX         of the column `pad`
    ADD COLUMN        NOT NULL with a default, which InnoDB and Apus do without a look at the rows
    MODIFY            of an INT that is in an index to BIGINT, which copies the table
    ADD FOREIGN KEY   on the new column, with its index, every row looked at

In front of each is a time of the same load with nothing beside it (`--control`). sysbench tells of each second the longest latency of a statement; a second counts that overlaps with the change, or with the control. A statement that fails ends the measurement.

    scripts/perf/alter.py                                             print the table
    scripts/perf/alter.py --rows 5000000 --write docs/performance.md      the long form, put between that file's markers
    scripts/perf/alter.py --peers ''                                  Apus alone
"""

import argparse
import contextlib
import time
import typing

import native  # (puts tests/ on the path)
import peers
from lib import sysbench
from lib.cluster import Cluster

CHANGES = {
    "ADD INDEX": "ALTER TABLE sbtest1 ADD INDEX by_pad (pad)",
    "ADD COLUMN": "ALTER TABLE sbtest1 ADD COLUMN parent INT NOT NULL DEFAULT 1",
    "MODIFY": "ALTER TABLE sbtest1 MODIFY k BIGINT NOT NULL DEFAULT 0",
    "ADD FOREIGN KEY": "ALTER TABLE sbtest1 ADD CONSTRAINT of_parent FOREIGN KEY (parent) REFERENCES parents (id)",
}
LOADS = ["oltp_point_select", "oltp_update_non_index"]
SHOWN = {"apus": "Apus", "mysql": "MySQL"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table (1,000,000)")
    parser.add_argument("--threads", type=int, default=4, help="connections of each load (4)")
    parser.add_argument("--control", type=int, default=10, help="seconds with nothing beside the load, in front of each change (10)")
    parser.add_argument("--changes", default=",".join(CHANGES), help="comma-separated (all four)")
    parser.add_argument("--peers", default="mysql", help="mysql, or nothing")
    parser.add_argument("--memory", type=int, default=6144, help="MiB of each data node (6144)")
    parser.add_argument("--write", metavar="FILE", help="put the table between the markers of this file")
    return parser.parse_args()


class Felt(typing.NamedTuple):
    """Of some seconds: the longest statement in milliseconds, and how many ended in a second."""

    longest: float
    rate: float


class Done(typing.NamedTuple):
    seconds: float
    control: Felt
    beside: Felt


def prepare(address, args):
    native.ask(address, "CREATE DATABASE sbtest")
    sysbench.sysbench("oltp_read_write", "prepare", address, limit=3600, tables=1, table_size=args.rows)
    native.ask(address, "CREATE TABLE sbtest.parents (id INT PRIMARY KEY)", "INSERT INTO sbtest.parents VALUES (1)")


def felt(loads, begin, finish):
    """What both loads tell of this time; waits until they have told it."""
    for load in loads:
        load.next_second()
    told = [load.between(begin, finish) for load in loads]
    return Felt(max(second.latency for seconds in told for second in seconds), sum(sum(second.transactions for second in seconds) / len(seconds) for seconds in told))


def measure(address, statement, args):
    with contextlib.ExitStack() as stack:
        loads = [stack.enter_context(native.Load(name, address, 100, threads=args.threads, tables=1, table_size=args.rows)) for name in LOADS]
        begin = time.monotonic()
        time.sleep(args.control)
        control = felt(loads, begin, begin + args.control)
        begin = time.monotonic()
        native.ask(address, "USE sbtest", statement)
        finish = time.monotonic()
        return Done(finish - begin, control, felt(loads, begin, finish))


def table(found, args):
    yield "| | server | s | rows/s | longest statement ms | without the change ms | beyond it ms | statements/s beside it, to those without |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for change, by_server in found.items():
        for server, done in by_server.items():
            beyond = max(0.0, done.beside.longest - done.control.longest)
            yield (f"| {change} | {SHOWN[server]} | {done.seconds:.2f} | {args.rows / done.seconds:,.0f} | {done.beside.longest:,.1f} | {done.control.longest:,.1f} | {beyond:,.1f} "
                   f"| {done.beside.rate / done.control.rate:.2f} |")


def main():
    args = arguments()
    scenario = peers.scenario("alter")
    found = {change: {} for change in args.changes.split(",")}
    with scenario.cleanup:
        native.on_disk(scenario.directory, 2 + args.rows // 500_000)
        machine = native.Machine(scenario, [peer for peer in args.peers.split(",") if peer], disk=False)
        servers = {"apus": scenario.cleanup.enter_context(Cluster(scenario, memory=args.memory)).sql}
        if "mysql" in args.peers.split(","):
            servers["mysql"] = ("127.0.0.1", peers.mysql(scenario).port)
        for address in servers.values():
            prepare(address, args)
        for change in found:
            for server, address in servers.items():
                found[change][server] = measure(address, CHANGES[change], args)
                print(change, server, found[change][server], flush=True)
        text = "\n".join([
            f"{machine}. {peers.SETTINGS}.",
            f"A table of {args.rows:,} rows as sysbench makes them; point selects and updates beside it, {args.threads} connections each. {peers.command()}",
            "",
            *table(found, args),
        ])
    peers.publish(args, "alter table", text)


if __name__ == "__main__":
    main()
