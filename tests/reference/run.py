#!/usr/bin/env python3
"""The statements of tests/reference/cases, against the reference and against Apus.

    run.py NAME...                   against an Apus of its own; all files without names
    run.py --port N NAME...          against an Apus that runs already (`make dev`)
    run.py --memory BYTES NAME...    with so little memory for the rows of a statement that they go to files; 0: all that can
    run.py --record NAME...          the answers of the reference anew
    run.py --mark NAME...            what differs gets `-- open: ...`, what no longer does loses its mark; look at what it writes
    run.py --docs                    the table in docs/sql.md
    run.py --ask                     a statement per line of the input, answered by both
    run.py --draw COUNT --from N     the answers of the reference to COUNT seeds anew, in drawn/
    run.py --generate COUNT --from N COUNT seeds of random statements from N on, answered by both; what differs is made small
    run.py --write N                 the statements of a seed as cases/generated_N.test
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lib import answers, cases, drawn, generator, generator_queries, zones  # noqa: E402
from lib.cluster import Cluster  # noqa: E402
from lib.harness import Failure, Scenario  # noqa: E402
from lib.mysql import MySql  # noqa: E402


# Of each seed.
STATEMENTS = 60


def apus(scenario, arguments):
    where = {"host": "127.0.0.1", "port": arguments.port}
    if not arguments.port:
        files = scenario.directory / "files"
        files.mkdir()
        cluster = scenario.cleanup.enter_context(Cluster(scenario, secure_file_priv=files))
        where = dict(zip(("host", "port"), cluster.sql))
    if arguments.memory is not None:
        answers.connect(**where).query(f"SET GLOBAL apus_query_memory = {arguments.memory}")
    return where


def reference(scenario):
    where = {"unix_socket": str(scenario.cleanup.enter_context(MySql(scenario.directory / "m")).socket)}
    zones.load(**where)
    return where


def ask(scenario, arguments):
    sides = {"mysql": reference(scenario), "apus": apus(scenario, arguments)}
    sides = {name: answers.connect(**where) for name, where in sides.items()}
    for name, connection in sides.items():
        connection.query("DROP DATABASE IF EXISTS asked")
        connection.query("CREATE DATABASE asked COLLATE utf8mb4_general_ci")
        connection.query("USE asked")
    for statement in cases.parse(sys.stdin.read()):
        found = {name: answers.ask(connection, statement.text) for name, connection in sides.items()}
        print(f"> {statement.text}")
        if cases.same(statement.text, found["mysql"], found["apus"]):
            print("\n".join(found["mysql"]))
        else:
            for name, lines in found.items():
                print("\n".join(f"  {name:6}{line}" for line in lines))


def generate(scenario, arguments):
    sides = [answers.connect(**where) for where in (reference(scenario), apus(scenario, arguments))]
    asked, explained, found = 0, {}, []
    for seed in range(arguments.first, arguments.first + arguments.generate):
        for name, made in generator_queries.KINDS.items():
            count, new, known = generator.compared(made(seed).script(STATEMENTS), *sides)
            asked += count
            for word, number in known.items():
                explained[word] = explained.get(word, 0) + number
            for text, wanted, answer in new:
                kind = cases.kind_of_answers(cases.essence(text, wanted), cases.essence(text, answer))
                found.append(kind)
                print(f"{name} of seed {seed}, {kind}: {text}")
                print("\n".join(["  wanted " + line for line in wanted[:6]] + ["  found  " + line for line in answer[:6]]), flush=True)
    print(f"{asked} statements, {len(found)} differ: " + ", ".join(f"{found.count(k)} {k}" for k in sorted(set(found))))
    for word, number in sorted(explained.items()):
        print(f"  {number} explained: {word}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--port", type=int)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--mark", action="store_true")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--draw", type=int)
    parser.add_argument("--generate", type=int)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--write", type=int)
    arguments = parser.parse_args()
    if arguments.write is not None:
        path = cases.CASES / f"generated_{arguments.write}.test"
        text = "".join(f"{statement};\n" for statement in generator.Generator(arguments.write).script(STATEMENTS))
        path.write_text(f"-- Seed {arguments.write} of tests/lib/generator.py.\n" + text)
        return
    scenario = Scenario("reference")
    with scenario.cleanup:
        if arguments.ask:
            return ask(scenario, arguments)
        if arguments.draw:
            connection = answers.connect(**reference(scenario))
            for kind in generator_queries.KINDS:
                seeds = range(arguments.first, arguments.first + arguments.draw)
                print(f"{kind}: {drawn.record(kind, seeds, connection)} recorded")
            return
        if arguments.generate:
            return generate(scenario, arguments)
        paths = cases.paths(arguments.names)
        if arguments.record:
            where = reference(scenario)
            for path in paths:
                print(f"{path.stem}: {cases.record(path, **where)} recorded")
            return
        where = apus(scenario, arguments)
        files = {}
        for path in paths:
            files[path], wrong, speed = cases.compare(path, **where)
            if arguments.mark:
                cases.mark(path, files[path])
            print("\n".join(wrong))
            print(f"{path.stem}: {len(files[path])} statements, {len(wrong)} wrong, {speed:.0f}/s")
        if arguments.docs:
            cases.document(cases.table(files))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(str(failure))
