#!/usr/bin/env python3
"""How the insert rate and the memory of data nodes go with the size of a table, by process.

A cluster of its own for each round and mode (`apus dev`, two data nodes). `apus bench kv` inserts `--keys` rows of 16 + 100 bytes, 64 keys per request; each second it tells how many it
did, and the resident memory (VmRSS) of both data nodes is read. The rate at a size is that between it and the size before. Then all rows are deleted, and inserted again into a new table: memory
that is not given back, or not used again, shows. Bytes per row are what resident memory grew by, of one data node, from the empty cluster on; each node has a copy of each row. Beside the rate
is the processor's time that a data node takes for a row, its own and the system's: of a machine that is not quiet it tells more than the rate, and where fresh memory is dear.

    scripts/perf/growth.py                                              print the tables
    scripts/perf/growth.py --rounds 3 --write docs/performance.md       the long form, put between that file's markers
    scripts/perf/growth.py --keys 1000000 --modes off,replicated
"""

import argparse
import bisect
import os
import re
import subprocess
import time

import native  # (puts tests/ on the path)
import peers
from lib.harness import BINARY, check, end, rss_kib, spawn

TOLD = re.compile(r"^insert +\d+ s +([\d,]+) operations/s$")
NODES = (1, 2)
STATES = ["all inserted", "all deleted", "inserted again"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="runs of each mode; medians count (1)")
    parser.add_argument("--keys", type=int, default=10_000_000, help="rows (10,000,000)")
    parser.add_argument("--points", default="200000,500000,1000000,2000000,5000000,10000000", help="sizes, comma-separated; those above --keys are left out")
    parser.add_argument("--modes", default="off", help="off, replicated, disk; comma-separated (off)")
    parser.add_argument("--memory", type=int, default=8192, help="MiB of each data node (8192)")
    parser.add_argument("--write", metavar="FILE", help="put the tables between the markers of this file")
    return parser.parse_args()


class Run:
    def __init__(self):
        self.curve = [(0, 0.0, 0.0, 0.0, 0.0)]  # rows, seconds, resident bytes of a data node more than at the start, its seconds of processor, the system's for it
        self.states = {}  # the same bytes when all was inserted, deleted, inserted again

    def at(self, rows):
        """(seconds, resident bytes, seconds of processor, of the system) when there were so many rows, between what was seen before and after."""
        place = min(max(1, bisect.bisect_left([seen for seen, *_ in self.curve], rows)), len(self.curve) - 1)
        (few, *before), (many, *after) = self.curve[place - 1], self.curve[place]
        share = (rows - few) / (many - few)
        return tuple(b + (a - b) * share for b, a in zip(before, after))

    def rate(self, begin, rows):
        return (rows - begin) / (self.at(rows)[0] - self.at(begin)[0])

    def processor(self, begin, rows, which):
        """Microseconds of processor that a data node took for a row, its own (2) or the system's (3)."""
        return (self.at(rows)[which] - self.at(begin)[which]) / (rows - begin) * 1e6


def resident(pids):
    """Mean of the data nodes, bytes."""
    return sum(map(rss_kib, pids)) * 1024 / len(pids)


def processor(pids):
    """Seconds of processor so far, and the system's, mean of the data nodes."""
    ticks = [0, 0]
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        ticks = [ticks[0] + int(fields[11]), ticks[1] + int(fields[12])]
    return [tick / os.sysconf("SC_CLK_TCK") / len(pids) for tick in ticks]


def insert(cluster, pids, empty, args):
    """Inserts all rows and watches: the curve."""
    command = [BINARY, *native.kv_command(["insert"], keys=args.keys, batch=64)]
    process = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=cluster.environment)
    curve, text, rows, began, before = Run().curve, "", 0, time.monotonic(), processor(pids)

    def seen(seconds):
        user, system = (now - then for now, then in zip(processor(pids), before))
        return seconds, resident(pids) - empty, user, system

    try:
        for line in process.stdout:
            text += line
            if found := TOLD.match(line.strip()):
                # Of the second that this line tells of; whole seconds, so the sum is made right at the end.
                rows += native.number(found.group(1))
                curve.append((rows, *seen(time.monotonic() - began)))
        check(process.wait() == 0, text)
    finally:
        end(process)
        process.stdout.close()
    done = native.phases(text)["insert"]
    check(done.operations == args.keys, text)
    before_end = [point for point in curve if point[0] < args.keys and point[1] < done.seconds]
    return [*before_end, (args.keys, *seen(done.seconds))]


def settled(pids):
    """Resident bytes when they have not changed for a second, after ten at most."""
    last, until = resident(pids), time.monotonic() + 10
    while time.monotonic() < until:
        time.sleep(1)
        now = resident(pids)
        if abs(now - last) < 1 << 20:
            break
        last = now
    return resident(pids)


def one_run(scenario, mode, number, args):
    run = Run()
    with native.cluster(scenario, mode, f"{mode}-{number}", memory=args.memory) as cluster:
        pids = [cluster.data_pid(node) for node in NODES]
        empty = resident(pids)
        run.curve = insert(cluster, pids, empty, args)
        run.states["all inserted"] = settled(pids) - empty
        native.kv(cluster, ["delete"], keys=args.keys, batch=64)
        run.states["all deleted"] = settled(pids) - empty
        native.kv(cluster, ["insert"], keys=args.keys, batch=64)
        run.states["inserted again"] = settled(pids) - empty
    return run


def curve_table(runs, args):
    points = [rows for rows in map(int, args.points.split(",")) if rows <= args.keys]
    yield "| rows |" + "".join(f" {native.SHOWN[mode]}: inserts/s since the size before | us of processor per row and node | of the system | bytes per row |" for mode in runs)
    yield "|---:|" + "---:|---:|---:|---:|" * len(runs)
    for begin, rows in zip([0, *points], points):
        line = f"| {rows:,} |"
        for done in runs.values():
            line += f" {native.medians(done, lambda run: run.rate(begin, rows)):,.0f} |"
            for which in (2, 3):
                line += f" {native.medians(done, lambda run: run.processor(begin, rows, which)):.2f} |"
            line += f" {native.medians(done, lambda run: run.at(rows)[1] / rows):,.0f} |"
        yield line


def states_table(runs, args):
    yield "| |" + "".join(f" {native.SHOWN[mode]}: MiB more than when empty | bytes per row inserted |" for mode in runs)
    yield "|---|" + "---:|---:|" * len(runs)
    for state in STATES:
        grown = [native.medians(done, lambda run: run.states[state]) for done in runs.values()]
        yield f"| {state} |" + "".join(f" {more / (1 << 20):,.0f} | {more / args.keys:,.0f} |" for more in grown)


def main():
    args = arguments()
    scenario = peers.scenario("growth")
    runs = {mode: [] for mode in args.modes.split(",")}
    logged = list(runs) != ["off"]
    with scenario.cleanup:
        if logged:
            native.on_disk(scenario.directory)
        machine = native.Machine(scenario, disk=logged)
        for number, mode in native.in_turn(list(runs), args.rounds):
            run = one_run(scenario, mode, number, args)
            runs[mode].append(run)
            print(mode, f"{run.curve[-1][1]:.1f} s", {state: f"{more / (1 << 20):,.0f} MiB" for state, more in run.states.items()}, flush=True)
        text = "\n".join([
            f"{machine}.",
            f"{args.keys:,} rows of 16 + 100 bytes, 64 keys per request, two data nodes with a copy of each row; resident memory is the mean of both. Medians of {args.rounds} in alternation. {peers.command()}",
            "",
            *curve_table(runs, args),
            "",
            *states_table(runs, args),
        ])
    peers.publish(args, "growth table", text)


if __name__ == "__main__":
    main()
