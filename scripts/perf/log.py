#!/usr/bin/env python3
"""What durability costs: native inserts, updates and deletes with the log off, on, and awaited by each commit; in batches and one by one, of small rows and larger.

For each size of rows and each number of keys per request three clusters (`apus dev`, two data nodes) in turn, `--rounds` times: without a directory; with one, class `replicated`;
with one, class `disk`. Each phase is measured for `--seconds` at least: inserts and deletes, which go over each key once, are repeated until then. Ratios are of medians. Then one client with
one request in flight: how long one row takes. The disk's own rate is measured beside it.

    scripts/perf/log.py                                            print the tables
    scripts/perf/log.py --seconds 60 --batches 64 --rows 16+100 --write docs/performance.md   the long form, put between that file's markers
"""

import argparse

import native  # (puts tests/ on the path)
import peers

PHASES = ["insert", "update", "delete"]
SINGLE = ["insert", "read", "update", "delete"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each cluster; medians count (3)")
    parser.add_argument("--seconds", type=int, default=2, help="seconds of each phase, at least (2)")
    parser.add_argument("--modes", default=",".join(native.MODES), help="the first is what the others are compared with (off,replicated,disk)")
    parser.add_argument("--rows", default="8+8,16+100", help="bytes of key and value, comma-separated (8+8,16+100)")
    parser.add_argument("--batches", default="64,1", help="keys per request, comma-separated (64,1)")
    parser.add_argument("--keys", type=int, default=500_000, help="rows, a tenth of it where requests have one key (500,000)")
    parser.add_argument("--threads", type=int, help="threads of the load, each with its client (as `apus bench kv`)")
    parser.add_argument("--in-flight", type=int, help="requests in flight per thread (as `apus bench kv`)")
    parser.add_argument("--single", type=int, default=5_000, help="requests of each kind by one client with one in flight; 0: none (5,000)")
    parser.add_argument("--memory", type=int, default=4096, help="MiB of each data node (4096)")
    parser.add_argument("--write", metavar="FILE", help="put the tables between the markers of this file")
    return parser.parse_args()


class Cell:
    """One size of rows, one number of keys per request; operations per second of each run by mode."""

    def __init__(self, row, batch, args):
        self.row, self.batch, self.args, self.runs = row, batch, args, {mode: [] for mode in args.modes}
        key_size, value_size = map(int, row.split("+"))
        keys = args.keys if batch > 1 else max(1000, args.keys // 10)
        self.load = {"keys": keys, "key_size": key_size, "value_size": value_size, "batch": batch, "threads": args.threads, "in_flight": args.in_flight}

    def measure(self, cluster):
        """Operations per second by phase."""
        done = {phase: [run] for phase, run in native.kv(cluster, PHASES, seconds=self.args.seconds, **self.load).items()}

        def seconds(phase):
            return sum(run.seconds for run in done[phase])

        while min(seconds("insert"), seconds("delete")) < self.args.seconds:
            for phase, run in native.kv(cluster, ["insert", "delete"], **self.load).items():
                done[phase].append(run)
        return {phase: sum(run.operations for run in done[phase]) / seconds(phase) for phase in PHASES}

    def lines(self):
        for phase in PHASES:
            first, *others = ([run[phase] for run in runs] for runs in self.runs.values())
            base = native.medians(first)
            line = f"| {self.row} | {self.batch} | {phase} | {base:,.0f} |"
            for rates in others:
                line += f" {native.medians(rates):,.0f} | {native.medians(rates) / base:.2f} |"
            yield line


def single(cluster, args):
    """One client, one key, one request in flight, in a table of `--keys` rows of 16 + 100 bytes: {phase: what it did}."""
    alone = {"batch": 1}
    found = native.kv(cluster, ["insert", "delete"], "--single-thread", keys=args.single, **alone)
    native.kv(cluster, ["insert"], keys=args.keys, batch=64)
    return found | native.kv(cluster, ["read", "update"], "--single-thread", keys=args.keys, ops=args.single, **alone)


def measured(scenario, args):
    """The cells, and what a single client found by mode."""
    cells = [Cell(row, int(batch), args) for row in args.rows.split(",") for batch in args.batches.split(",")]
    singles = {mode: [] for mode in args.modes}
    for place, cell in enumerate(cells):
        for number, mode in native.in_turn(args.modes, args.rounds):
            with native.cluster(scenario, mode, f"{mode}-{place}-{number}", memory=args.memory) as cluster:
                cell.runs[mode].append(cell.measure(cluster))
            print(cell.row, cell.batch, mode, {phase: round(rate) for phase, rate in cell.runs[mode][-1].items()}, flush=True)
    for number, mode in native.in_turn(args.modes, args.rounds if args.single else 0):
        with native.cluster(scenario, mode, f"{mode}-single-{number}", memory=args.memory) as cluster:
            singles[mode].append(single(cluster, args))
        print("single", mode, {phase: (run.p50, run.p99) for phase, run in singles[mode][-1].items()}, flush=True)
    return cells, singles


def rates_table(cells, modes):
    first, *others = (native.SHOWN[mode] for mode in modes)
    yield f"| bytes of a row | keys per request | | {first}, /s |" + "".join(f" {name}, /s | ratio |" for name in others)
    yield "|---|---:|---|---:|" + "---:|---:|" * len(others)
    for cell in cells:
        yield from cell.lines()


def single_table(singles):
    yield "| |" + "".join(f" {native.SHOWN[mode]}: p50 / p99 us |" for mode in singles)
    yield "|---|" + "---:|" * len(singles)
    for phase in SINGLE:
        times = (f" {native.medians(runs, lambda run: run[phase].p50):,.1f} / {native.medians(runs, lambda run: run[phase].p99):,.1f} |" for runs in singles.values())
        yield f"| {phase} |" + "".join(times)


def main():
    args = arguments()
    args.modes = args.modes.split(",")
    scenario = peers.scenario("log")
    with scenario.cleanup:
        native.on_disk(scenario.directory)
        machine = native.Machine(scenario)
        cells, singles = measured(scenario, args)
        text = "\n".join([
            f"{machine}.",
            f"{args.keys:,} rows, or a tenth of it where requests have one key; two data nodes, which share the machine with their load; {args.seconds} s of each phase at least, medians of {args.rounds} runs in "
            f"alternation. {peers.command()}",
            "",
            *rates_table(cells, args.modes),
        ])
        if args.single:
            text += "\n".join(["", "", f"One client, one request of one key in flight, rows of 16 + 100 bytes, {args.single:,} requests of each kind (reads and updates in a table of {args.keys:,}):", "", *single_table(singles)])
    peers.publish(args, "log table", text)


if __name__ == "__main__":
    main()
