#!/usr/bin/env python3
"""Apus against MariaDB/InnoDB by sysbench, on this machine, in the same run.

Both servers run all the time; each cell (workload, threads) is measured on one and then on the other, `--rounds` times in
alternating order, and the medians are compared. So a slow minute of the machine hits both. MariaDB is Debian's, with
innodb_flush_log_at_trx_commit=0, a 4 GiB buffer pool, no performance schema and no binary log: memory speed, no
durability per commit, as Apus has it. Apus runs as `apus dev`: two data nodes, so each row is stored twice.

    scripts/perf/compare.py                                    print the table
    scripts/perf/compare.py --time 10 --write docs/performance.md   and put it between that file's markers
    scripts/perf/compare.py --workloads oltp_point_select --threads 16
    scripts/perf/compare.py --before ../old/target/release/apus   another build of Apus in MariaDB's place
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from lib.cluster import Cluster  # noqa: E402
from lib.harness import Failure, Scenario, run  # noqa: E402
from lib.mariadb import MariaDb, batch  # noqa: E402
from lib.sysbench import ALL, figure, sysbench  # noqa: E402

BEGIN, END = "<!-- sysbench table: begin -->", "<!-- sysbench table: end -->"
MARIADB = ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=4G", "--innodb-log-file-size=1G",
           "--performance-schema=OFF", "--max-connections=500", "--skip-log-bin"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=int, default=6, help="seconds per measurement (6)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements per cell and server; medians count (3)")
    parser.add_argument("--threads", default="1,8,32", help="comma-separated (1,8,32)")
    parser.add_argument("--workloads", default=",".join(ALL), help="comma-separated (all ten)")
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--table-size", type=int, default=100_000)
    parser.add_argument("--write", metavar="FILE", help="put the table between the markers of this file")
    parser.add_argument("--before", metavar="BINARY", help="compare with this build of Apus and not with MariaDB")
    parser.add_argument("--dev", default="", help="more arguments for apus dev, comma-separated: workers=1,sql_threads=1")
    return parser.parse_args()


class Side:
    def __init__(self, name, address):
        self.name, self.address = name, address

    def measure(self, workload, threads, args):
        """(transactions per second, 95th percentile in ms); for bulk_insert rows per second."""
        tables = 1 if workload.startswith("select_random") else args.tables  # these refuse more than one table
        options = {"tables": tables, "table_size": args.table_size, "threads": threads}
        if workload == "bulk_insert":
            sysbench(workload, "prepare", self.address, database="bulk", **options)
            try:
                text = sysbench(workload, "run", self.address, database="bulk", seconds=args.time, limit=args.time + 120, **options)
            finally:
                sysbench(workload, "cleanup", self.address, database="bulk", **options)
            return figure(text, "events") / args.time, figure(text, "95th percentile")
        text = sysbench(workload, "run", self.address, seconds=args.time, limit=args.time + 120, **options)
        return figure(text, "transactions"), figure(text, "95th percentile")

    def prepare(self, args):
        batch("CREATE DATABASE sbtest; CREATE DATABASE bulk", *self.address)
        sysbench("oltp_read_write", "prepare", self.address, limit=1800, threads=min(4, args.tables), tables=args.tables,
                 table_size=args.table_size)

    def refill(self, args):
        """Write workloads that insert or delete leave tables of another size behind."""
        sysbench("oltp_read_write", "cleanup", self.address, limit=300, tables=args.tables)
        sysbench("oltp_read_write", "prepare", self.address, limit=1800, threads=min(4, args.tables), tables=args.tables,
                 table_size=args.table_size)


def cell(sides, workload, threads, args):
    """Medians per side: {name: (per second, p95 ms)}; None where a side failed, with the reason on stderr."""
    found = {side.name: [] for side in sides}
    for number in range(args.rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            try:
                found[side.name].append(side.measure(workload, threads, args))
            except Failure as failure:
                print(f"{side.name} {workload} {threads}: {failure}", file=sys.stderr, flush=True)
    return {name: tuple(map(statistics.median, zip(*list_))) if list_ else None for name, list_ in found.items()}


def show(value, digits=0):
    return "failed" if value is None else f"{value:,.{digits}f}"


def table(sides, args):
    ours, peer = (side.name for side in sides)
    lines = [f"| workload | threads | {ours} /s | {peer} /s | ratio | {ours} p95 ms | {peer} p95 ms |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for workload in args.workloads.split(","):
        for threads in map(int, args.threads.split(",")):
            ours, peer = cell(sides, workload, threads, args).values()
            ratio = show(ours[0] / peer[0], 2) if ours and peer and peer[0] else "-"
            line = (f"| {workload} | {threads} | {show(ours and ours[0])} | {show(peer and peer[0])} | {ratio} "
                    f"| {show(ours and ours[1], 2)} | {show(peer and peer[1], 2)} |")
            print(line, flush=True)
            lines.append(line)
        if workload in ("oltp_insert", "oltp_delete"):
            for side in sides:
                side.refill(args)
    return lines


def host():
    """Processors, and the commit that is measured."""
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "unknown")
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run(["git", "-C", ROOT, "status", "--porcelain", "--", "crates"], capture_output=True, text=True).stdout
    return f"{os.cpu_count()} cores ({model})", f"commit {commit}{' with changes' if changed else ''}"


def machine(args):
    _, version = run([args.before, "--version"] if args.before else ["mariadbd", "--version"])
    return f"{', '.join(host())}; {version.split('  ')[-1].strip()}"


def put(path, text):
    old = path.read_text()
    head, rest = old.split(BEGIN, 1)
    _, foot = rest.split(END, 1)
    path.write_text(f"{head}{BEGIN}\n{text}\n{END}{foot}")


def main():
    args = arguments()
    scenario = Scenario("compare")
    options = dict(pair.split("=", 1) for pair in args.dev.split(",") if pair)
    with scenario.cleanup:
        if args.before:
            before = scenario.cleanup.enter_context(Cluster(scenario, "before", binary=args.before, **options))
            peer = Side("before", before.sql)
        else:
            server = scenario.cleanup.enter_context(MariaDb(scenario.directory / "m", tcp=True, options=MARIADB))
            peer = Side("MariaDB", ("127.0.0.1", server.port))
        with Cluster(scenario, **options) as cluster:
            sides = [Side("Apus", cluster.sql), peer]
            for side in sides:
                side.prepare(args)
            lines = table(sides, args)
    text = "\n".join([
        f"{machine(args)}.",
        f"{args.tables} tables of {args.table_size:,} rows, {args.time} s per measurement, medians of {args.rounds} in alternation; servers and",
        "load generator share the machine. bulk_insert counts rows, all others transactions. Command:",
        f"`scripts/perf/compare.py {' '.join(sys.argv[1:])}`".replace(" `", "`"),
        "",
        *lines,
    ])
    if args.write:
        put(pathlib.Path(args.write), text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
