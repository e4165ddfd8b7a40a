#!/usr/bin/env python3
"""How soon a data node, and a whole cluster, serve again after kill -9: what they read back from their disks, and what they fetch.

Each measurement has a cluster of its own (`apus dev --dir`, two data nodes with a copy of everything each) and `--keys` rows; `--rounds` times in turn:

    own disk     node 2 is killed, `--changed` percent of the rows are updated and as many others deleted, node 2 is started again
    no disk      the same, but its directory was removed meanwhile
    all killed   the rows are changed first, then all processes are killed, and the cluster is started again

Without and with an ordered index beside that of the primary key, which each table has. In the last round both nodes answer alone for the same content. MariaDB (`--peers mariadb`)
gets as many rows, the same index and the same changes, and is killed and started again: the time until it answers.

    scripts/perf/rejoin.py                                                  print the table
    scripts/perf/rejoin.py --keys 5000000 --memory 6144 --write docs/performance.md   the long form, put between that file's markers
"""

import argparse
import os
import shutil
import time

import native  # (puts tests/ on the path)
import peers
from lib.cluster import Cluster
from lib.harness import alive, check, check_equal, wait_until
from lib.mariadb import MariaDb

WAYS = ["own disk", "no disk", "all killed"]
START_SECONDS = 900
# Rows that one statement of MariaDB's load inserts, and changes.
CHUNK, CHANGED_CHUNK = 100_000, 1_000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="restarts of each kind; medians count (3)")
    parser.add_argument("--keys", type=int, default=500_000, help="rows (500,000)")
    parser.add_argument("--changed", type=int, default=1, help="percent of the rows that are updated, and that are deleted (1)")
    parser.add_argument("--ways", default=",".join(WAYS), help="comma-separated (own disk,no disk,all killed)")
    parser.add_argument("--indexes", default="0,1", help="ordered indexes beside the primary key's, comma-separated (0,1)")
    parser.add_argument("--peers", default="mariadb", help="mariadb, or nothing")
    parser.add_argument("--memory", type=int, default=4096, help="MiB of each data node (4096)")
    parser.add_argument("--write", metavar="FILE", help="put the table between the markers of this file")
    return parser.parse_args()


# ---- Apus


class Restart:
    """What one restart took, and what each worker said of it: what it put back, and what it fetched."""

    def __init__(self, seconds, logs):
        self.seconds, self.put_back, self.filled = seconds, logs.put_back(), logs.filled()

    def read_per_core(self):
        """Rows and changes that a worker reads back in a second."""
        seconds = sum(line[0] for line in self.put_back)
        return sum(line[1] + line[2] for line in self.put_back) / seconds if seconds else None

    def filled_per_core(self):
        """Rows that a worker fetches, or finds unchanged, in a second."""
        ms = sum(line[0] for line in self.filled)
        return sum(line[1] + line[2] for line in self.filled) * 1000 / ms if ms else None

    def rows(self):
        """Rows and changes read back by one node, fetched, unchanged, gone."""
        nodes = 2 if len(self.put_back) > 1 and not self.filled else 1
        read = sum(line[1] + line[2] for line in self.put_back) // nodes
        return [read, *(sum(line[place] for line in self.filled) for place in (1, 2, 3))]


def fill(cluster, indexes, args):
    native.kv(cluster, ["insert"], keys=args.keys, batch=64)
    for number in range(indexes):
        native.ask(cluster.sql, f"ALTER TABLE apus_bench.kv ADD INDEX v{number} (v)")


def change(cluster, args):
    count = max(1, args.keys * args.changed // 100)
    native.kv(cluster, ["update"], keys=args.keys, batch=64, ops=count)
    native.kv(cluster, ["delete"], keys=count, batch=64)
    return args.keys - count


def wait_for_disk():
    """Class `replicated`: what was written is on disk within tenths of a second."""
    time.sleep(1)


def restart_node(cluster, way, directory, args):
    wait_for_disk()
    cluster.kill(2)
    cluster.wait_down(2)
    left = change(cluster, args)
    if way == "no disk":
        shutil.rmtree(directory / "files" / "data-2")
    with native.Logs(directory, ["data-2"]) as logs:
        began = time.monotonic()
        cluster.restart(2)
        cluster.wait_up(2, seconds=START_SECONDS)
        seconds = time.monotonic() - began
    return Restart(seconds, logs), left


def kill_all(cluster):
    pids = [cluster.process.pid, *cluster.everyone().values()]
    for pid in pids:
        os.kill(pid, 9)
    cluster.process.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids), 60, "all are gone")


def check_alone(cluster, left):
    """Each node, alone, answers for the same content: rows, and a sum over keys and values."""
    seen = []
    for killed in (2, 1):
        cluster.kill(killed)
        cluster.wait_down(killed)
        seen.append(native.ask(cluster.sql, "SELECT COUNT(*), SUM(CRC32(CONCAT(k, v))) FROM apus_bench.kv"))
        cluster.restart(killed)
        cluster.wait_up(killed, seconds=START_SECONDS)
    check(seen[0] == seen[1], f"node 1 holds {seen[0]}, node 2 {seen[1]}")
    check_equal(seen[0][0], left, "rows")


def one_restart(scenario, kind, number, args):
    indexes, way = kind
    directory = scenario.directory / "d"
    cluster = Cluster(scenario, name=f"c{indexes}-{WAYS.index(way)}-{number}", dir=directory, memory=args.memory).__enter__()
    try:
        fill(cluster, indexes, args)
        if way == "all killed":
            left = change(cluster, args)
            wait_for_disk()
            kill_all(cluster)
            cluster = Cluster(scenario, name=f"again{indexes}-{number}", dir=directory, memory=args.memory)
            cluster.start_seconds = START_SECONDS
            with native.Logs(directory, ["data-1", "data-2"]) as logs:
                began = time.monotonic()
                cluster.__enter__()
                seconds = time.monotonic() - began
            done = Restart(seconds, logs)
        else:
            done, left = restart_node(cluster, way, directory, args)
        if number == args.rounds - 1:
            check_alone(cluster, left)
        return done
    except BaseException as error:
        if not isinstance(error, (KeyboardInterrupt, SystemExit)):
            print(cluster.node_logs(), flush=True)
        raise
    finally:
        cluster.stop()
        shutil.rmtree(directory)


# ---- MariaDB


def maria_key(number):
    """A key of 16 bytes of a row's number, in no order, as a SQL expression: an odd factor makes another number of each."""
    return f"CAST(CONCAT(LPAD(HEX(({number} * 2654435761) & 0xffffffff), 8, '0'), 'kkkkkkkk') AS BINARY(16))"


def chunks(first, last, size):
    for begin in range(first, last + 1, size):
        yield begin, min(begin + size - 1, last)


def load_mariadb(address, indexes, args):
    """The rows, the index, and the changes, of each so many rows in one transaction; how many rows there are, and how many were changed."""
    statements = ["CREATE DATABASE kv", "USE kv", "CREATE TABLE kv (k VARBINARY(16) NOT NULL PRIMARY KEY, v VARBINARY(100) NOT NULL)"]
    for begin, end in chunks(1, args.keys, CHUNK):
        statements.append(f"INSERT INTO kv SELECT {maria_key('seq')}, RPAD(seq, 100, 'x') FROM seq_{begin}_to_{end}")
    statements += [f"ALTER TABLE kv ADD INDEX v{number} (v)" for number in range(indexes)]
    count = max(1, args.keys * args.changed // 100)
    for begin, end in chunks(count + 1, 2 * count, CHANGED_CHUNK):
        # `STRAIGHT_JOIN` and the key's own type: each row is found by its key.
        statements.append(f"UPDATE seq_{begin}_to_{end} s STRAIGHT_JOIN kv t ON t.k = {maria_key('s.seq')} SET t.v = RPAD(s.seq, 100, 'y')")
    for begin, end in chunks(1, count, CHANGED_CHUNK):
        statements.append(f"DELETE t FROM seq_{begin}_to_{end} s STRAIGHT_JOIN kv t ON t.k = {maria_key('s.seq')}")
    native.ask(address, *statements)
    return args.keys - count, count


def mariadb_recovery(scenario, indexes, number, args):
    """Seconds from its start until MariaDB answers after kill -9."""
    directory = scenario.directory / f"m{indexes}-{number}"
    with MariaDb(directory, tcp=True, options=peers.MARIADB) as server:
        address = ("127.0.0.1", server.port)
        content = load_mariadb(address, indexes, args)
        time.sleep(2)  # innodb_flush_log_at_trx_commit=0: its log is on disk after a second
        server.process.kill()
        server.process.wait()
        began = time.monotonic()
        server.start(seconds=START_SECONDS)
        seconds = time.monotonic() - began
        check_equal(native.ask(address, "SELECT COUNT(*), SUM(RIGHT(v, 1) = 'y') FROM kv.kv"), content, "MariaDB's rows, changed rows")
    shutil.rmtree(directory)
    return seconds


# ---- the table


def table(runs, peer):
    yield "| | ordered indexes beside the primary key's | serves again after, s | rows and changes read back by a node | per second and core | fetched | unchanged | gone | fetched or looked at per second and core |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for (indexes, way), done in runs.items():
        def rate(of):
            rates = [of(run) for run in done]
            return "-" if None in rates else f"{native.medians(rates):,.0f}"

        read, fetched, unchanged, gone = done[-1].rows()
        yield (f"| {way} | {indexes} | {native.medians(done, lambda run: run.seconds):.2f} | {read:,} | {rate(Restart.read_per_core)} | {fetched:,} | {unchanged:,} | {gone:,} "
               f"| {rate(Restart.filled_per_core)} |")
    for indexes, seconds in peer.items():
        yield f"| MariaDB, killed | {indexes} | {native.medians(seconds):.2f} | | | | | | |"


def main():
    args = arguments()
    scenario = peers.scenario("rejoin")
    variants = list(map(int, args.indexes.split(",")))
    kinds = [(indexes, way) for indexes in variants for way in args.ways.split(",") if way]
    beside = [name for name in args.peers.split(",") if name]
    runs, peer = {kind: [] for kind in kinds}, {indexes: [] for indexes in variants if beside}
    with scenario.cleanup:
        native.on_disk(scenario.directory)
        machine = native.Machine(scenario, beside)
        for number, kind in native.in_turn(kinds + [(indexes, "MariaDB") for indexes in peer], args.rounds):
            if kind[1] == "MariaDB":
                peer[kind[0]].append(mariadb_recovery(scenario, kind[0], number, args))
                print(*kind, f"{peer[kind[0]][-1]:.2f} s", flush=True)
            else:
                done = one_restart(scenario, kind, number, args)
                runs[kind].append(done)
                print(*kind, f"{done.seconds:.2f} s", done.put_back, done.filled, flush=True)
        text = "\n".join([
            f"{machine}.",
            f"{args.keys:,} rows of 16 + 100 bytes, two data nodes; {args.changed} % of the rows are updated and {args.changed} % deleted, while node 2 is dead or before all are killed. Medians of {args.rounds} in alternation. "
            f"{peers.INNODB_SETTINGS}.",
            "What is read back per second counts from a worker's first look at its files until its ordered indexes are made, by the clock. "
            f"Each node, alone, answered for the same content in the last round. {peers.command()}",
            "",
            *table(runs, peer),
        ])
    peers.publish(args, "rejoin table", text)


if __name__ == "__main__":
    main()
