#!/usr/bin/env python3
"""How soon a data node that was killed is a full member again: with its own disk, and without it.

One cluster (`apus dev --dir`, two data nodes with a copy of everything each). `--keys` rows; node 2 is killed, 1 % of the rows are updated and another 1 % deleted, node 2 is started
again; `--rounds` times in turn with what is on its disk, and after its directory was removed. In the end both nodes answer alone for the same content.

    scripts/perf/rejoin.py                                 print the table
    scripts/perf/rejoin.py --write docs/performance.md     and put it between that file's markers
"""

import argparse
import pathlib
import re
import shutil
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "scripts" / "perf"))

import compare  # noqa: E402
import pymysql  # noqa: E402
from lib.cluster import Cluster  # noqa: E402
from lib.harness import Scenario, check  # noqa: E402

compare.BEGIN, compare.END = "<!-- rejoin table: begin -->", "<!-- rejoin table: end -->"
WAYS = ["own disk", "no disk"]
SAID = re.compile(r"was filled in \d+ ms: (\d+) rows fetched, (\d+) unchanged, (\d+) gone")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="restarts of each kind; medians count (3)")
    parser.add_argument("--keys", type=int, default=500_000, help="rows (500,000)")
    parser.add_argument("--write", metavar="FILE", help="put the table between the markers of this file")
    return parser.parse_args()


def bench(cluster, phase, keys, *more):
    _, text = cluster.apus("bench", "kv", f"--keys={keys}", "--batch=64", f"--phases={phase}", *more, seconds=900)
    check(not re.search(r"errors [1-9]|wrong [1-9]|missing [1-9]", text), text)


def content(cluster):
    """Rows, and a sum over keys and values."""
    host, port = cluster.sql
    link = pymysql.connect(host=host, port=port, user="root", read_timeout=300)
    with link, link.cursor() as cursor:
        cursor.execute("SELECT COUNT(*), SUM(CRC32(CONCAT(k, v))) FROM apus_bench.kv")
        return cursor.fetchone()


def one_restart(cluster, way, directory, keys):
    """Seconds until node 2 is a full member; rows fetched, unchanged, gone."""
    bench(cluster, "insert", keys)
    time.sleep(1)  # what was written is on disk within tenths of a second
    cluster.kill(2)
    cluster.wait_down(2)
    bench(cluster, "update", keys, f"--ops={keys // 100}")
    bench(cluster, "delete", keys // 100)
    if way == "no disk":
        [shutil.rmtree(path) for path in (directory / "files").glob("data-2")]
    before = len(SAID.findall(cluster.log_of("data-2")))
    began = time.monotonic()
    cluster.restart(2)
    cluster.wait_up(2, seconds=300)
    seconds = time.monotonic() - began
    said = SAID.findall(cluster.log_of("data-2"))[before:]  # a line of each worker
    return seconds, [sum(int(line[i]) for line in said) for i in range(3)]


def main():
    args = arguments()
    scenario = Scenario("rejoin")
    with scenario.cleanup:
        directory = scenario.directory / "d"
        cluster = Cluster(scenario, name="rejoin", dir=directory).__enter__()
        runs = {way: [] for way in WAYS}
        for number in range(args.rounds):
            for way in WAYS:
                runs[way].append(one_restart(cluster, way, directory, args.keys))
                print(way, runs[way][-1], flush=True)
        seen = []
        for alone, killed in ((1, 2), (2, 1)):
            cluster.kill(killed)
            cluster.wait_down(killed)
            seen.append(content(cluster))
            cluster.restart(killed)
            cluster.wait_up(killed, seconds=300)
        check(seen[0] == seen[1], f"node 1 holds {seen[0]}, node 2 {seen[1]}")
        cluster.stop()
    lines = ["| node 2 comes back with | full member after, s | rows fetched | unchanged | gone |", "|---|---:|---:|---:|---:|"]
    for way in WAYS:
        seconds = statistics.median(run[0] for run in runs[way])
        fetched, unchanged, gone = runs[way][-1][1]
        lines.append(f"| {way} | {seconds:.2f} | {fetched:,} | {unchanged:,} | {gone:,} |")
    text = "\n".join([
        f"{', '.join(compare.host())}. {args.keys:,} rows of 16 + 100 bytes, two data nodes; while node 2 is dead 1 % of the rows are updated and 1 % deleted. Medians of {args.rounds}.",
        f"Both nodes, alone, answer for the same content: {seen[0][0]:,} rows.",
        f"Command: `{' '.join(['scripts/perf/rejoin.py', *sys.argv[1:]])}`",
        "",
        *lines,
    ])
    if args.write:
        compare.put(pathlib.Path(args.write), text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
