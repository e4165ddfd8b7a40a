#!/usr/bin/env python3
"""TPC-H by `apus bench tpch`: Apus against MariaDB and MySQL, and DuckDB with the same rows, in the same run.

All servers run all the time. Each is loaded once, its tables are analyzed, and each query is asked of one after the other, `--rounds` times; medians count. A query
that a server does not answer within `--limit` seconds is shown as such and left out of the means, for all of them. Apus' answers must be those of MySQL.

    scripts/perf/tpch.py --scale 0.1 --write docs/performance.md
    scripts/perf/tpch.py --peers duckdb --queries 1,6

DuckDB is the Python package (pinned below), in memory, with all cores; its rows are read from the MariaDB or MySQL server, or from Apus.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

import peers  # (puts tests/ on the path)
from lib.cluster import Cluster
from lib.harness import BINARY, TARGET, Failure, Scenario, run
from lib.mariadb import CLIENT, batch

DUCKDB = "duckdb==1.4.1"
TABLES = ["region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"]
SHOWN = {"apus": "Apus", "mariadb": "MariaDB", "mysql": "MySQL", "duckdb": "DuckDB"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=60, help="seconds for a query (60)")
    parser.add_argument("--queries", default=",".join(map(str, range(1, 23))))
    parser.add_argument("--peers", default="mariadb,mysql,duckdb", help="comma-separated (mariadb,mysql,duckdb)")
    parser.add_argument("--write", metavar="FILE")
    return parser.parse_args()


class Server:
    def __init__(self, name, address, args):
        self.name, self.address, self.args, self.ms = name, address, args, {}

    def bench(self, *more, seconds):
        host, port = self.address
        command = [BINARY, "bench", "tpch", f"--host={host}", f"--port={port}", f"--scale={self.args.scale}", *more]
        code, text = run(command, seconds=seconds, ok=False)
        if not text.rstrip().splitlines()[-1].startswith("{") and code != 0:
            raise Failure(f"{self.name}: {text[-2000:]}")
        return text

    def load(self):
        self.bench("--phases=load", seconds=7200)
        batch("ANALYZE TABLE " + ", ".join(TABLES), *self.address, database="apus_tpch", seconds=600)

    def ask(self, query, *more):
        text = self.bench("--phases=run", f"--queries={query}", f"--limit={self.args.limit}", "--json", *more, seconds=self.args.limit + 60)
        found = json.loads(text.splitlines()[-1])["queries"][0]
        if found["wrong"]:
            raise Failure(f"{self.name} answers query {query} wrongly: {found['wrong']}")
        return found["ms"]


class Duck:
    """DuckDB in a process of its own: it reads queries from its input, and answers by milliseconds."""

    PROGRAM = """
import duckdb, json, sys, time
db = duckdb.connect()
db.execute("SET enable_progress_bar = false")  # it is on the output
for line in sys.stdin:
    what, text = json.loads(line)
    start = time.perf_counter()
    db.execute(text)
    if what == "ask":
        db.fetchall()
    print((time.perf_counter() - start) * 1000, flush=True)
"""

    def __init__(self, source, args, directory):
        self.name, self.source, self.args, self.directory, self.ms = "duckdb", source, args, directory, {}
        venv = TARGET / "test-clients" / "duckdb"
        if not (venv / DUCKDB).exists():
            run([sys.executable, "-m", "venv", venv], seconds=120)
            run([venv / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", DUCKDB], seconds=300)
            (venv / DUCKDB).touch()
        self.process = subprocess.Popen([venv / "bin/python", "-c", self.PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        _, text = run([BINARY, "bench", "tpch", "--print", f"--scale={args.scale}"])
        self.queries = {}
        for part in text.split("-- ")[1:]:
            number, query = part.split("\n", 1)
            self.queries[int(number)] = query.strip().rstrip(";")

    def tell(self, what, text):
        self.process.stdin.write(json.dumps([what, text]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise Failure(f"DuckDB did not take {text[:200]}")
        return float(answer)

    def load(self):
        host, port = self.source
        for table in TABLES:
            file = pathlib.Path(self.directory) / f"{table}.tsv"
            with open(file, "wb") as out:
                command = [CLIENT, "--no-defaults", "-uroot", f"-h{host}", f"-P{port}", "--protocol=TCP", "--quick", "-N", "-B", "apus_tpch",
                           "-e", f"SELECT * FROM {table}"]
                subprocess.run(command, stdout=out, check=True)
            _, ddl = batch(f"SHOW COLUMNS FROM {table}", host, port, database="apus_tpch")
            columns = ", ".join(" ".join(line.split("\t")[:2]) for line in ddl.splitlines()[1:])
            columns = columns.replace("int(11)", "int").replace("bigint(20)", "bigint")
            self.tell("do", f"CREATE TABLE {table} ({columns})")
            self.tell("do", f"COPY {table} FROM '{file}' (DELIMITER '\t', HEADER false, QUOTE '')")
            file.unlink()

    def ask(self, query):
        return self.tell("ask", self.queries[query])

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)


def mean(values):
    return math.exp(sum(math.log(max(v, 0.001)) for v in values) / len(values)) if values else float("nan")


def show(ms):
    return "-" if ms is None else f"{ms:,.1f}"


def table(sides, queries):
    lines = ["| query | " + " | ".join(f"{SHOWN[s.name]} ms" for s in sides) + " |", "|---|" + "---:|" * len(sides)]
    for query in queries:
        lines.append(f"| {query} | " + " | ".join(show(s.ms[query]) for s in sides) + " |")
    common = [q for q in queries if all(s.ms[q] is not None for s in sides)]
    means = [mean([s.ms[q] for q in common]) for s in sides]
    lines.append(f"| geometric mean of {len(common)} | " + " | ".join(f"{m:,.1f}" for m in means) + " |")
    lines.append("| to Apus | " + " | ".join(f"{m / means[0]:.2f}" for m in means) + " |")
    return lines


def main():
    args = arguments()
    scenario = Scenario("tpch")
    queries = [int(q) for q in args.queries.split(",")]
    wanted = [name for name in args.peers.split(",") if name]
    with scenario.cleanup:
        started = {name: getattr(peers, name)(scenario) for name in wanted if name != "duckdb"}
        with Cluster(scenario) as cluster:
            sides = [Server("apus", cluster.sql, args)]
            sides += [Server(name, ("127.0.0.1", server.port), args) for name, server in started.items()]
            if "duckdb" in wanted:
                sides.append(Duck(sides[-1].address, args, scenario.directory))
                scenario.cleanup.callback(sides[-1].end)
            for side in sides:
                start = time.monotonic()
                side.load()
                print(f"{side.name}: loaded in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
            reference = next((s for s in sides if s.name == "mysql"), None)
            for query in queries:
                found = {s.name: [] for s in sides}
                answer = scenario.directory / "answer"
                for number in range(args.rounds):
                    for side in reversed(sides):
                        more = []
                        if reference and number == 0 and (side is reference or side is sides[0] and found["mysql"]):
                            more = [f"--record={answer}" if side is reference else f"--check={answer}"]
                        if found[side.name] == [] and number > 0:
                            continue  # it took too long
                        ms = side.ask(query, *more)
                        if ms is not None:
                            found[side.name].append(ms)
                for side in sides:
                    side.ms[query] = statistics.median(found[side.name]) if found[side.name] else None
                print(f"Q{query}: " + ", ".join(f"{s.name} {show(s.ms[query])}" for s in sides), file=sys.stderr, flush=True)
    command = " ".join(["scripts/perf/tpch.py", *sys.argv[1:]])
    text = "\n".join([
        f"{peers.machine()}, {DUCKDB.replace('==', ' ')}. {peers.SETTINGS}; DuckDB: in memory, both cores.",
        f"Scale {args.scale}, medians of {args.rounds} in turn; `-`: not within {args.limit} s. {'Answers are those of MySQL. ' if reference else ''}"
        f"Command: `{command}`",
        "",
        *table(sides, queries),
    ])
    if args.write:
        peers.put(pathlib.Path(args.write), f"tpch {args.scale:g} table", text)
    print(text)


if __name__ == "__main__":
    main()
