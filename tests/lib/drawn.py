"""Drawn statements of fixed seeds with the answers of the reference, so that every run compares them without it.

`tests/reference/drawn/KIND.result` holds the seeds of one kind of `generator_queries.KINDS`; each begins with a line `# seed N`, its statements and answers are as in a
`.result` of `cases`. What is recorded stays as it is when the generators change.
"""

import re

from . import answers, cases, generator_queries
from .harness import ROOT

DRAWN = ROOT / "tests" / "reference" / "drawn"
# Of each seed.
STATEMENTS = 60
# Statements whose answers are other ones for now, by the seed and the place of the statement in it.
OPEN = {
    ("expressions", 1021, "DELETE FROM t WHERE ((c1 >= 'A') AND ('abc' IS NULL)) ORDER BY k LIMIT 1"): "a condition that no row can meet is asked of rows",
}
# Looks at what a change has left, and puts the rows back.
AFTER = re.compile(r"SELECT \* FROM t ORDER BY k$|DELETE FROM t$|INSERT INTO t VALUES ")


def fresh(connection):
    for text in ("DROP DATABASE IF EXISTS drawn", "CREATE DATABASE drawn COLLATE utf8mb4_general_ci", "USE drawn"):
        connection.query(text)


def record(kind, seeds, connection):
    """Writes the file of a kind; how many statements it has."""
    count = 0
    DRAWN.mkdir(exist_ok=True)
    with open(DRAWN / f"{kind}.result", "w") as out:
        for seed in seeds:
            fresh(connection)
            out.write(f"# seed {seed}\n")
            for statement in generator_queries.KINDS[kind](seed).script(STATEMENTS):
                text = str(statement)
                out.write(f"> {text}\n" + "".join(line + "\n" for line in answers.ask(connection, text)))
                count += 1
    return count


def compare(path, connection):
    """(statements, those that nothing explains, as text)."""
    count, wrong = 0, []
    for part in re.split(r"^# seed ", path.read_text(), flags=re.M)[1:]:
        seed, _, rest = part.partition("\n")
        fresh(connection)
        spoiled = False
        for answer in re.split(r"^> ", rest, flags=re.M)[1:]:
            text, *wanted = answer.splitlines()
            found = answers.ask(connection, text)
            count += 1
            if spoiled and AFTER.match(text):
                continue
            spoiled = False
            is_open = (path.stem, int(seed), text) in OPEN
            if cases.same(text, wanted, found):
                if is_open:
                    wrong.append(f"{path.stem}, seed {seed}: no longer different, take it from drawn.OPEN: {text}")
                continue
            spoiled = not text.startswith(("SELECT", "WITH"))
            if not is_open and not cases.explanation(text, wanted, found):
                shown = "\n".join(["  wanted " + line for line in wanted[:6]] + ["  found  " + line for line in found[:6]])
                wrong.append(f"{path.stem}, seed {seed}: {text}\n{shown}")
    return count, wrong
