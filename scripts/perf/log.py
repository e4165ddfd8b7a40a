#!/usr/bin/env python3
"""What durability costs: native inserts, updates and deletes with the log off, on, and awaited by each commit; and how fast a cluster is back.

Three clusters (`apus dev`, two data nodes) in turn, `--rounds` times: without a directory; with one, class `replicated`; with one, class `disk`. Ratios are of medians.
After its last round the rows of the second are inserted again, all its processes are killed, and it is started again. The disk's own rate is measured beside it.

    scripts/perf/log.py                                 print the tables
    scripts/perf/log.py --write docs/performance.md     and put them between that file's markers
"""

import argparse
import os
import pathlib
import re
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "scripts" / "perf"))

import compare  # noqa: E402
from lib.cluster import Cluster  # noqa: E402
from lib.harness import Scenario, alive, wait_until  # noqa: E402

compare.BEGIN, compare.END = "<!-- log table: begin -->", "<!-- log table: end -->"
MODES = ["off", "replicated", "disk"]
PHASES = ["insert", "update", "delete"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each cluster; medians count (3)")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of updates (5)")
    parser.add_argument("--keys", type=int, default=1_000_000, help="rows (1,000,000)")
    parser.add_argument("--batch", type=int, default=64, help="keys per request (64)")
    parser.add_argument("--write", metavar="FILE", help="put the tables between the markers of this file")
    return parser.parse_args()


def bench(cluster, args, phases):
    """Operations per second by phase."""
    command = ["bench", "kv", f"--keys={args.keys}", f"--batch={args.batch}", f"--seconds={args.seconds}", f"--phases={','.join(phases)}"]
    _, text = cluster.apus(*command, seconds=900)
    rates = dict(re.findall(r"^(\w+) +([\d,]+) operations/s", text, re.MULTILINE))
    if re.search(r"errors [1-9]|wrong [1-9]|missing [1-9]", text):
        raise SystemExit(text)
    return {phase: int(rates[phase].replace(",", "")) for phase in phases}


def start(scenario, mode, number, directory):
    options = {} if mode == "off" else {"dir": directory}
    cluster = Cluster(scenario, name=f"{mode}-{number}", **options).__enter__()
    if mode != "off":
        cluster.apus("cluster", "set", f"durability={mode}")
    return cluster


def one_run(scenario, mode, number, args):
    cluster = start(scenario, mode, number, scenario.directory / f"data-{mode}-{number}")
    try:
        return bench(cluster, args, PHASES)
    finally:
        cluster.stop()


def restart(scenario, args):
    """Seconds from the start of everything to the first statement, and what the nodes say of it."""
    directory = scenario.directory / "restart"
    cluster = start(scenario, "replicated", "before", directory)
    bench(cluster, args, ["insert", "update"])
    time.sleep(1)  # class replicated: what was written is on disk within tenths of a second
    pids = [cluster.process.pid, *cluster.everyone().values()]
    [os.kill(pid, 9) for pid in pids]
    cluster.process.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids), 60, "all are gone")
    began = time.monotonic()
    cluster = Cluster(scenario, name="restarted", dir=directory).__enter__()
    seconds = time.monotonic() - began
    said = [re.search(r"put back .*", log.read_text()) for log in sorted(directory.glob("data-*.log"))]
    cluster.stop()
    return seconds, [found.group(0) for found in said if found]


def syncs_per_second(directory):
    """Appends of 4 KiB, each with fdatasync, for two seconds."""
    with open(directory / "syncs", "wb", buffering=0) as file:
        began, count = time.monotonic(), 0
        while time.monotonic() < began + 2:
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            count += 1
    return count / 2


def main():
    args = arguments()
    scenario = Scenario("log")
    with scenario.cleanup:
        syncs = syncs_per_second(scenario.directory)
        rates = {mode: [] for mode in MODES}
        for number in range(args.rounds):
            for mode in MODES if number % 2 == 0 else reversed(MODES):
                rates[mode].append(one_run(scenario, mode, number, args))
                print(mode, rates[mode][-1], flush=True)
        seconds, said = restart(scenario, args)
        syncs = statistics.median([syncs, syncs_per_second(scenario.directory)])
    median = {mode: {phase: statistics.median(run[phase] for run in runs) for phase in PHASES} for mode, runs in rates.items()}
    lines = ["| | log off, /s | on, class replicated, /s | ratio | on, class disk, /s | ratio |", "|---|---:|---:|---:|---:|---:|"]
    for phase in PHASES:
        off, on, disk = (median[mode][phase] for mode in MODES)
        lines.append(f"| {phase} | {off:,.0f} | {on:,.0f} | {on / off:.2f} | {disk:,.0f} | {disk / off:.2f} |")
    text = "\n".join([
        f"{', '.join(compare.host())}; the disk makes {syncs:,.0f} appends of 4 KiB with fdatasync per second.",
        f"{args.keys:,} rows of 16 + 100 bytes, {args.batch} keys per request, two data nodes that share the machine with their load; medians of {args.rounds} runs in alternation.",
        f"Command: `{' '.join(['scripts/perf/log.py', *sys.argv[1:]])}`",
        "",
        *lines,
        "",
        f"All processes killed after inserts and {args.seconds} s of updates: the cluster serves again {seconds:.1f} s after it is started. Its nodes, at the same time: " + "; ".join(said) + ".",
    ])
    if args.write:
        compare.put(pathlib.Path(args.write), text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
