#!/usr/bin/env python3
"""What a data node writes to its disk for each byte that is changed: updates of rows of 16 + 100 bytes, log and checkpoints.

A cluster of its own for each class of durability and number of keys per request (`apus dev --dir`, two data nodes). The rows are inserted; then they are updated for `--seconds`, at random,
and what each data node has given to the disk meanwhile is what the kernel says of it (/proc/PID/io, write_bytes less cancelled_write_bytes), until nothing comes any more. The share
of checkpoints is by what their files grew; `apus inspect` counts those that were finished. A changed byte is one of the 100 that an update sets.

    scripts/perf/written.py                                          print the table
    scripts/perf/written.py --seconds 60 --write docs/performance.md    the long form, put between that file's markers
    scripts/perf/written.py --keys 20000 --seconds 3 --checkpoint-log 16     small, and still with checkpoints
"""

import argparse
import contextlib
import time

import native  # (puts tests/ on the path)
import peers
from lib.harness import Failure, wait_until

VALUE_BYTES = 100
NODES = (1, 2)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind; medians count (3)")
    parser.add_argument("--seconds", type=int, default=10, help="seconds of updates (10)")
    parser.add_argument("--keys", type=int, default=200_000, help="rows (200,000)")
    parser.add_argument("--modes", default="replicated,disk", help="classes, comma-separated (replicated,disk)")
    parser.add_argument("--batches", default="64,1", help="keys per request, comma-separated (64,1)")
    parser.add_argument("--checkpoint-log", type=int, default=128, help="MiB of log that begin a checkpoint (128, as `apus data`)")
    parser.add_argument("--write", metavar="FILE", help="put the table between the markers of this file")
    return parser.parse_args()


class Run:
    """Updates of one run, and of each node: bytes written, of checkpoints, checkpoints finished."""

    def __init__(self, updates, nodes):
        self.updates, self.nodes = updates, nodes

    def per_changed_byte(self):
        return self.mean(0) / (self.updates.operations * VALUE_BYTES)

    def per_update(self):
        return self.mean(0) / self.updates.operations

    def mean(self, place):
        return sum(node[place] for node in self.nodes) / len(self.nodes)


def quiet(pids):
    """Waits until no node has written for half a second; so a checkpoint that is under way belongs to what began it."""
    last, since = None, time.monotonic()

    def is_quiet():
        nonlocal last, since
        now = [native.written(pid) for pid in pids]
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > 0.5

    wait_until(is_quiet, 120, "the data nodes have written everything")
    return last


def one_run(scenario, mode, batch, number, args):
    with native.cluster(scenario, mode, f"{mode}-{batch}-{number}", checkpoint_log=args.checkpoint_log) as cluster:
        native.kv(cluster, ["insert"], keys=args.keys, batch=64)
        pids = [cluster.data_pid(node) for node in NODES]
        before = quiet(pids)
        with contextlib.ExitStack() as watched:
            files = [watched.enter_context(native.CheckpointFiles(native.files_of(cluster, node))) for node in NODES]
            updates = native.kv(cluster, ["update"], keys=args.keys, batch=batch, seconds=args.seconds)["update"]
            after = quiet(pids)
        return Run(updates, [(end - begin, seen.bytes, seen.counted) for begin, end, seen in zip(before, after, files)])


def table(runs):
    yield "| | keys per request | updates/s | bytes written by a node per update | per changed byte | of them checkpoints | checkpoints finished by a node |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for (mode, batch), done in runs.items():
        share = native.medians(done, lambda run: run.mean(1) / max(1, run.mean(0)))
        yield (f"| {native.SHOWN[mode]} | {batch} | {native.medians(done, lambda run: run.updates.rate):,.0f} | {native.medians(done, Run.per_update):,.0f} "
               f"| {native.medians(done, Run.per_changed_byte):.2f} | {share:.0%} | {native.medians(done, lambda run: run.mean(2)):.1f} |")


def main():
    args = arguments()
    scenario = peers.scenario("written")
    kinds = [(mode, int(batch)) for batch in args.batches.split(",") for mode in args.modes.split(",")]
    runs = {kind: [] for kind in kinds}
    with scenario.cleanup:
        native.on_disk(scenario.directory)
        machine = native.Machine(scenario)
        for number, kind in native.in_turn(kinds, args.rounds):
            run = one_run(scenario, *kind, number, args)
            runs[kind].append(run)
            print(*kind, f"{run.updates.operations:,.0f} updates; each node: bytes, of checkpoints, checkpoints {run.nodes}", flush=True)
        if not any(node[2] for done in runs.values() for run in done for node in run.nodes):
            raise Failure("no node finished a checkpoint: take more --seconds, or a smaller --checkpoint-log")
        text = "\n".join([
            f"{machine}.",
            f"{args.keys:,} rows of 16 + 100 bytes, {args.seconds} s of updates at random, two data nodes; checkpoints begin behind {args.checkpoint_log} MiB of log. Medians of {args.rounds} in alternation. {peers.command()}",
            "",
            *table(runs),
        ])
    peers.publish(args, "written table", text)


if __name__ == "__main__":
    main()
