#!/usr/bin/env python3
"""What sysbench (oltp_read_write) feels of a checkpoint, and of a data node that comes back: 99th percentile, second by second.

Two clusters (`apus dev --dir`, two data nodes) with the same tables run all the time, and one of them at a time gets load, at half the rate that the first one could take (`--rate`).
`--rounds` times in turn:

    nothing         the first cluster, whose checkpoints begin behind `--no-checkpoint-log` MiB of log, so that none does
    a checkpoint    the second cluster, where they begin behind `--checkpoint-log` MiB: the seconds in which a node's checkpoint file grew
    own disk        the first cluster: node 2 is killed and removed, load begins, node 2 is started again: the seconds from then until it is a full member
    no disk         the same, after its directory was removed

What proves it: checkpoint files are looked at 20 times a second, and `apus inspect` of the control files counts the checkpoints that were finished; with `nothing` none may have been, nor
may a file have grown, with `a checkpoint` there must be `--checkpoints`. That a node came back is what `apus status` says, and what its log says of the rows that it fetched. sysbench tells of whole seconds, so a second
counts that overlaps with what is looked at; of each second there is one percentile, and their median and greatest are shown. Ratios are to `nothing`.

    scripts/perf/beside.py                                                     print the table
    scripts/perf/beside.py --table-size 300000 --time 20 --write docs/performance.md   the long form, put between that file's markers
    scripts/perf/beside.py --tables 2 --table-size 5000 --time 4 --rounds 1   small
"""

import argparse
import shutil
import time

import native  # (puts tests/ on the path)
import peers
from lib import sysbench
from lib.cluster import Cluster
from lib.harness import check
from lib.mariadb import load

STATES = ["nothing", "a checkpoint", "own disk", "no disk"]
SHOWN = {"nothing": "nothing", "a checkpoint": "a checkpoint", "own disk": "node 2 comes back, own disk", "no disk": "node 2 comes back, no disk"}
# After so long all wanted checkpoints were finished, or they never will be.
CHECKPOINT_SECONDS = 180


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=int, default=10, help="seconds of a measurement (10)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each kind (3)")
    parser.add_argument("--threads", type=int, default=8, help="connections (8)")
    parser.add_argument("--rate", type=int, help="transactions per second; 0: as many as it takes (half of what the first cluster takes)")
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--table-size", type=int, default=100_000)
    parser.add_argument("--checkpoint-log", type=int, default=1, help="MiB of log behind which the second cluster's checkpoints begin (1)")
    parser.add_argument("--checkpoints", type=int, default=3, help="that node 1 finishes in a measurement (3)")
    parser.add_argument("--no-checkpoint-log", type=int, default=4096, help="MiB of log behind which the first cluster's begin (4096)")
    parser.add_argument("--states", default=",".join(STATES), help="comma-separated (nothing,a checkpoint,own disk,no disk)")
    parser.add_argument("--write", metavar="FILE", help="put the table between the markers of this file")
    return parser.parse_args()


def prepared(scenario, name, args, checkpoint_log):
    cluster = scenario.cleanup.enter_context(Cluster(scenario, name=name, dir=scenario.directory / f"{name}.d", checkpoint_log=checkpoint_log))
    load(cluster, "CREATE DATABASE sbtest")
    sysbench.sysbench("oltp_read_write", "prepare", cluster.sql, limit=1800, threads=min(4, args.tables), tables=args.tables, table_size=args.table_size)
    return cluster


def load_of(cluster, args, rate):
    """oltp_read_write, and the 99th percentile of each second."""
    return native.Load("oltp_read_write", cluster.sql, 99, threads=args.threads, tables=args.tables, table_size=args.table_size, extra=[f"--rate={rate}"])


def half_rate(cluster, args):
    """Half of the transactions per second that the cluster takes."""
    with load_of(cluster, args, rate=0) as running:
        time.sleep(4)
        return int(native.medians(running.seconds[1:], lambda told: told.transactions) / 2)


def with_nothing(cluster, args, rate):
    with native.CheckpointFiles(native.files_of(cluster, 1)) as files, load_of(cluster, args, rate) as running:
        begin = time.monotonic()
        time.sleep(args.time)
        running.next_second()
        told = running.between(begin, begin + args.time)
    check(files.counted == 0 and not files.grew, f"node 1 made {files.counted} checkpoints where none should be: take a larger --no-checkpoint-log")
    return told, "no checkpoint"


def with_checkpoint(cluster, args, rate):
    """Load until node 1 has finished so many checkpoints under it, and for `--time` at least."""
    with native.CheckpointFiles(native.files_of(cluster, 1)) as files, load_of(cluster, args, rate) as running:
        begin = time.monotonic()
        time.sleep(args.time)
        while files.finished() < args.checkpoints:
            check(time.monotonic() < begin + CHECKPOINT_SECONDS, f"node 1 finished {files.finished()} checkpoints within {CHECKPOINT_SECONDS} s: take a smaller --checkpoint-log, or fewer --checkpoints")
            time.sleep(1)
        finish = time.monotonic()
        running.next_second()
        told = [second for second in running.between(begin, finish) if files.grew_between(second.at - 1, second.at)]
    return told, f"{files.counted} checkpoints of {files.bytes / (1 << 20):,.0f} MiB in {finish - begin:.0f} s"


def with_node_back(cluster, args, rate, own_disk):
    """Node 2 is dead while load begins, and comes back under it."""
    files = native.files_of(cluster, 2)
    cluster.kill(2)
    cluster.wait_down(2)
    if not own_disk:
        shutil.rmtree(files)
    with native.Logs(files.parents[1], ["data-2"]) as logs, load_of(cluster, args, rate) as running:
        begin = time.monotonic()
        cluster.restart(2)
        cluster.wait_up(2, seconds=600)
        finish = time.monotonic()
        running.next_second()
        told = running.between(begin, finish)
    check(logs.filled(), f"node 2 did not say that it was filled:\n{cluster.node_logs()}")
    _, fetched, unchanged, gone = map(sum, zip(*logs.filled()))
    return told, f"full member after {finish - begin:.1f} s: {fetched:,} rows fetched, {unchanged:,} unchanged, {gone:,} gone"


def measure(state, quiet, busy, args, rate):
    """(the seconds that count, what proves it)."""
    if state == "nothing":
        return with_nothing(quiet, args, rate)
    if state == "a checkpoint":
        return with_checkpoint(busy, args, rate)
    return with_node_back(quiet, args, rate, own_disk=state == "own disk")


def table(runs):
    base = None
    yield "| beside | seconds | transactions/s | p99 ms, median | ratio | p99 ms, greatest second | deadlocks | what ran, last round |"
    yield "|---|---:|---:|---:|---:|---:|---:|---|"
    for state, done in runs.items():
        seconds = [second for told, _ in done for second in told]
        p99 = native.medians(seconds, lambda told: told.latency)
        base = base or (p99 if state == "nothing" else None)
        ratio = f"{p99 / base:.2f}" if base else "-"
        yield (f"| {SHOWN[state]} | {len(seconds)} | {native.medians(seconds, lambda told: told.transactions):,.0f} | {p99:.1f} | {ratio} | {max(told.latency for told in seconds):.1f} "
               f"| {sum(told.errors for told in seconds):,.0f} | {done[-1][1]} |")


def main():
    args = arguments()
    scenario = peers.scenario("beside")
    runs = {state: [] for state in args.states.split(",")}
    with scenario.cleanup:
        native.on_disk(scenario.directory)
        machine = native.Machine(scenario)
        quiet = prepared(scenario, "quiet", args, args.no_checkpoint_log)
        busy = prepared(scenario, "busy", args, args.checkpoint_log)
        rate = half_rate(quiet, args) if args.rate is None else args.rate
        for _, state in native.in_turn(list(runs), args.rounds):
            told, proof = measure(state, quiet, busy, args, rate)
            runs[state].append((told, proof))
            print(state, [second.latency for second in told], proof, flush=True)
        text = "\n".join([
            f"{machine}.",
            f"oltp_read_write, {args.tables} tables of {args.table_size:,} rows, {args.threads} connections, {f'{rate:,} transactions per second' if rate else 'as many transactions as it takes'}; "
            f"{args.rounds} times in alternation; checkpoints begin behind {args.checkpoint_log} MiB of log. {peers.command()}",
            "",
            *table(runs),
        ])
    peers.publish(args, "beside table", text)


if __name__ == "__main__":
    main()
