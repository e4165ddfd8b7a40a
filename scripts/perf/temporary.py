#!/usr/bin/env python3
"""What a temporary table costs: CREATE, an INSERT of 100 rows, a SELECT of its sums by an index, DROP, by one connection; Apus and MySQL in the same run, in alternation.

    same          the same definition each time, as procedures and applications make them: Apus uses the emptied table of before
    new           another definition each time, which is a change of the dictionary in Apus
    beside        as `same`, with `--tables` permanent tables in the dictionary
    new beside    as `new`, with these

    scripts/perf/temporary.py                              print the table
    scripts/perf/temporary.py --write docs/performance.md      put it between that file's markers
    scripts/perf/temporary.py --peers ''                       Apus alone
"""

import argparse
import contextlib
import statistics
import time

import native  # (puts tests/ on the path)
import peers
import pymysql
from lib.cluster import Cluster

ROWS = ",".join(f"({n}, {n % 10}, 'row {n}')" for n in range(100))
STEPS = ["CREATE", "INSERT", "SELECT", "DROP"]
SHOWN = {"apus": "Apus", "mysql": "MySQL"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="tables of each measurement (100)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, of which the median counts (3)")
    parser.add_argument("--tables", type=int, default=500, help="permanent tables of those `beside` (500)")
    parser.add_argument("--peers", default="mysql", help="mysql, or nothing")
    parser.add_argument("--write", metavar="FILE", help="put the table between the markers of this file")
    return parser.parse_args()


def statements(number, is_new):
    more = f", c{number} INT" if is_new else ""
    return [
        f"CREATE TEMPORARY TABLE work (id INT PRIMARY KEY, k INT, note VARCHAR(40){more}, KEY (k))",
        f"INSERT INTO work (id, k, note) VALUES {ROWS}",
        "SELECT k, COUNT(*), SUM(id) FROM work WHERE k BETWEEN 2 AND 5 GROUP BY k ORDER BY k",
        "DROP TEMPORARY TABLE work",
    ]


def measure(address, args, is_new, first):
    """Mean milliseconds of each step."""
    spent = dict.fromkeys(STEPS, 0.0)
    with contextlib.closing(pymysql.connect(host=address[0], port=address[1], user="root", database="work", autocommit=True)) as connection, connection.cursor() as cursor:
        for number in range(args.times):
            for step, statement in zip(STEPS, statements(first + number, is_new)):
                begin = time.monotonic()
                cursor.execute(statement)
                spent[step] += time.monotonic() - begin
    return {step: 1000 * seconds / args.times for step, seconds in spent.items()}


def table(found):
    yield "| | server | " + " | ".join(f"{step} ms" for step in STEPS) + " | all ms | Apus / MySQL |"
    yield "|---|---|" + "---:|" * (len(STEPS) + 2)
    for kind, by_server in found.items():
        medians = {server: {step: statistics.median(one[step] for one in rounds) for step in STEPS} for server, rounds in by_server.items()}
        whole = {server: sum(steps.values()) for server, steps in medians.items()}
        for server, steps in medians.items():
            ratio = f"{whole['apus'] / whole['mysql']:.1f}" if server == "apus" and "mysql" in whole else ""
            yield f"| {kind} | {SHOWN[server]} | " + " | ".join(f"{steps[step]:.2f}" for step in STEPS) + f" | {whole[server]:.2f} | {ratio} |"


def main():
    args = arguments()
    scenario = peers.scenario("temporary")
    wanted = [peer for peer in args.peers.split(",") if peer]
    with scenario.cleanup:
        machine = peers.machine(wanted)
        servers = {"apus": scenario.cleanup.enter_context(Cluster(scenario)).sql}
        if "mysql" in wanted:
            servers["mysql"] = ("127.0.0.1", peers.mysql(scenario).port)
        for address in servers.values():
            native.ask(address, "CREATE DATABASE work")
        found, first = {}, 0
        for tables in [0, args.tables]:
            for address in servers.values() if tables else []:
                native.ask(address, *(f"CREATE TABLE work.permanent_{n} (id INT PRIMARY KEY, a INT, b VARCHAR(40), c DATETIME, KEY (a))" for n in range(tables)))
            for kind, is_new in [("same", False), ("new", True)]:
                kind = kind if not tables else "beside" if kind == "same" else "new beside"
                found[kind] = {server: [] for server in servers}
                for _ in range(args.rounds):
                    for server, address in servers.items():
                        found[kind][server].append(measure(address, args, is_new, first))
                        print(kind, server, found[kind][server][-1], flush=True)
                    first += args.times
        text = "\n".join([
            f"{machine}. {peers.SETTINGS}.",
            f"One connection, {args.times} tables of each measurement, medians of {args.rounds} in alternation; beside: {args.tables} permanent tables. {peers.command()}",
            "",
            *table(found),
        ])
    peers.publish(args, "temporary tables", text)


if __name__ == "__main__":
    main()
