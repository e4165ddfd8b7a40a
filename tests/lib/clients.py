"""Applications written against a client's library: each migrates its schema, works, and writes while data nodes are killed.

A program takes `PORT DATABASE STEP`. `migrate` makes its schema, `work` tells by its end that all answers were right, `load` prints `writes`, runs
transactions until a line comes in, and prints {"numbers": how many were acknowledged, "retried": how many it ran again after error 1213}. Each of
them adds one to `stock` of a row of `books`, all of which are 0 before, and a row to `events`.
"""

import dataclasses
import json
import pathlib
import subprocess

from .harness import check, check_equal, end, run
from .mariadb import batch

STEP_SECONDS = 120
HERE = pathlib.Path(__file__).resolve().parents[1] / "clients"


@dataclasses.dataclass
class Program:
    name: str
    command: list
    environment: dict | None = None
    # The steps that are cases of their own.
    steps: tuple = (("migrate", "its schema is migrated"), ("work", "what an application does is answered as it expects"))

    @property
    def database(self):
        return self.name.lower().replace("-", "_").replace(".", "_")

    def arguments(self, sql, step):
        return [str(part) for part in (*self.command, sql[1], self.database, step)]


def run_programs(t, cluster, programs):
    for program in programs:
        ask(cluster.sql, f"CREATE DATABASE {program.database} CHARACTER SET utf8mb4")
        for step, name in program.steps:
            with t.case(f"{program.name}: {name}"):
                code, text = run(program.arguments(cluster.sql, step), seconds=STEP_SECONDS, env=program.environment, ok=False)
                check(code == 0, f"{cluster.node_logs() if code else ''}\n{text[-6000:]}")
    with t.case("transactions of all of them go on while each data node is killed and joins again"):
        kill_under(t, cluster, programs)


def kill_under(t, cluster, programs):
    """All programs write at once."""
    writers = []
    for program in programs:
        log = open(t.directory / f"{program.database}.log", "w+")  # noqa: SIM115
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True, "env": program.environment}
        writer = subprocess.Popen(program.arguments(cluster.sql, "load"), **pipes)
        t.cleanup.callback(log.close)
        t.cleanup.callback(end, writer)
        writers.append((program, writer, log))
    for program, writer, log in writers:
        check_equal(writer.stdout.readline(), "writes\n", f"{program.name} begins; it says {said(log)}")
    list(cluster.kill_each())
    for program, writer, log in writers:
        text, _ = writer.communicate("\n", timeout=STEP_SECONDS)
        check(writer.returncode == 0, f"{program.name}: {text[-3000:]}{said(log)}")
        found = json.loads(text.splitlines()[-1])
        check(found["numbers"] > 0, f"{program.name}: nothing was written")
        kept = ask(cluster.sql, "SELECT COUNT(*), COUNT(DISTINCT number), (SELECT SUM(stock) FROM books) FROM events", program.database)
        check_equal(kept.split(), [str(found["numbers"])] * 3, f"{program.name}: events, their numbers, and what they added up")
        t.say(f"{program.name}: {found['numbers']} transactions, {found['retried']} of them run again after 1213")


def said(log):
    log.flush()
    log.seek(0)
    return log.read()[-3000:]


def ask(sql, statement, database=None):
    code, text = batch(statement, host=sql[0], port=sql[1], database=database, options=["-N"])
    check(code == 0, text)
    return text
