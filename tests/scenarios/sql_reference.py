"""The statements of tests/reference/cases have the answers that were recorded from MySQL; tests/reference/run.py says more. With FULL=1
random statements of fresh seeds go to a MySQL as well."""

import time

from lib import answers, cases, drawn, generator, generator_queries
from lib.cluster import Cluster
from lib.harness import FULL, Failure, check, scenario_main
from lib.mysql import MySql

LIMIT_SECONDS = (240, 900)
SIDE_BY_SIDE = True
SHOWN = 12
SEEDS = 100
STATEMENTS = 60
# Of a thousand generated statements so many have another value or error today. The number may only become smaller.
DIFFERENT_MAX = 5


def random_statements(t, where):
    """(asked, smallest statements that differ) over fresh seeds."""
    with MySql(t.directory / "m") as reference:
        sides = [answers.connect(unix_socket=str(reference.socket)), answers.connect(**where)]
        asked, found, first = 0, [], int(time.time())
        for seed in range(first, first + SEEDS):
            for name, made in generator_queries.KINDS.items():
                count, new, _ = generator.compared(made(seed).script(STATEMENTS), *sides)
                asked += count
                found += [f"{name} of seed {seed}: {text}" for text, _, _ in new]
    return asked, found


def main(t):
    paths = cases.paths()
    check(paths, "no cases")
    files = {}
    read = t.directory / "files"
    read.mkdir()
    with Cluster(t, secure_file_priv=read) as cluster:
        host, port = cluster.sql
        for path in paths:
            with t.case(path.stem):
                files[path], wrong, speed = cases.compare(path, host=host, port=port)
                t.say(f"{len(files[path])} statements, {speed:.0f} per second")
                if wrong:
                    raise Failure("\n".join([*wrong[:SHOWN], f"{len(wrong)} in all"]))
        for path in sorted(drawn.DRAWN.glob("*.result")):
            with t.case(f"drawn {path.stem}"):
                count, wrong = drawn.compare(path, answers.connect(host=host, port=port))
                t.say(f"{count} statements")
                check(count > 1000 and not wrong, "\n".join([*wrong[:SHOWN], f"{len(wrong)} of {count} in all"]))
        if FULL:
            with t.case("random statements"):
                asked, found = random_statements(t, {"host": host, "port": port})
                t.say(f"{asked} statements, {len(found)} differ")
                check(len(found) * 1000 <= asked * DIFFERENT_MAX, "\n".join(found[:SHOWN]))
        if len(files) == len(paths):
            with t.case("docs/sql.md lists the differences"):
                check(cases.documented() == cases.table(files), "tests/reference/run.py --docs")


if __name__ == "__main__":
    scenario_main(main)
