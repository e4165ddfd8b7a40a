"""The SQL cases of tests/sql: what the mariadb client prints for them on Apus must be what it prints on MariaDB.

Each NAME.sql has its expected output in NAME.out, made by MariaDB (`UPDATE=1 tests/run.py sql_regression`) and checked against
it again in every run. A file whose first line says `-- only: apus` has no MariaDB side: its .out is written by hand or made by
Apus and read by a person; without a .out its statements only may not be refused. Of an error only number and SQLSTATE count, not its words. Statements on which the two are meant to differ
stand in KNOWN with the reason.
"""

import difflib
import os
import pathlib
import re

from lib.cluster import Cluster
from lib.harness import Failure, check, scenario_main, tail
from lib.mariadb import MariaDb, batch

LIMIT_SECONDS = (180, 180)
SIDE_BY_SIDE = True
SQL = pathlib.Path(__file__).resolve().parents[1] / "sql"
UPDATE = os.environ.get("UPDATE", "") not in ("", "0")
RULE = "-" * 14

# (file, statement): reason. Such a statement's output must differ: one that no longer does is to be taken off the list.
MYSQL_8 = "ours is MySQL 8's answer, MariaDB's differs"
QUOTIENTS = "a quotient is rounded to the digits that it shows, as in MySQL 9"
WARNINGS = "warnings of expressions are not counted yet"
KNOWN = {
    ("aggregates", "SELECT AVG(a)*3, SUM(a/3), AVG(a/3), SUM(a/3)*3, SUM(a)/3*3, AVG(c/3)*3, CONCAT(AVG(a/7)), MIN(a/3)*3 FROM ag"): QUOTIENTS,
    ("errors", "SELECT * FROM missing.t"): MYSQL_8,
    ("insert", "INSERT INTO i (k) VALUES ('abc')"): MYSQL_8,
    ("expressions", "SELECT CAST('12' AS SIGNED), CAST(-1 AS UNSIGNED), CAST(1.5 AS CHAR), CAST('1.239' AS DECIMAL(5,2))"): WARNINGS,
    ("expressions", "SELECT CAST(1e20 AS SIGNED), CAST(18446744073709551615 AS SIGNED), CAST(-1e20 AS SIGNED)"): WARNINGS,
    ("joins", "SELECT * FROM c a JOIN c b ON a.id = b.id JOIN (SELECT a.id) d ON 1"): MYSQL_8,
    ("joins", "SELECT o.cid, o.amount, COUNT(*) FROM c JOIN o ON o.cid = c.id GROUP BY o.cid"): MYSQL_8,
    ("subqueries", "SELECT t.y FROM (SELECT id, city FROM c) AS t (x, y) WHERE x > 2 ORDER BY x"): MYSQL_8,
    ("subqueries", "SELECT * FROM (SELECT 1)"): MYSQL_8,
    ("types", "INSERT INTO numbers VALUES (4, 1.234567, 2.5, 0.1, 0.1)"): WARNINGS,
}


def normalise(text):
    """Errors lose their words, blank lines go: the client prints them by verbosity, not by content."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"^(ERROR \d+ \(\w+\)).*$", r"\1", line)
        if line.strip() and line != "Bye":
            lines.append(line)
    return lines


def statements(lines):
    """[(statement, lines of its echo and output)], in order."""
    parts, i = [("", [])], 0
    while i < len(lines):
        if lines[i] == RULE and RULE in lines[i + 1:]:
            end = lines.index(RULE, i + 1)
            parts.append((" ".join(lines[i + 1:end]), lines[i:end + 1]))
            i = end
        else:
            parts[-1][1].append(lines[i])
        i += 1
    return parts


def without_known(name, lines):
    """Drops the output of statements in KNOWN."""
    return [line for statement, part in statements(lines) if (name, statement) not in KNOWN for line in part]


def known_but_equal(name, found, wanted):
    """Statements in KNOWN on which the two no longer differ."""
    outputs = [{}, {}]
    for lines, output in zip((found, wanted), outputs):
        for statement, part in statements(lines):
            output.setdefault(statement, []).append(part)
    listed = [statement for file, statement in KNOWN if file == name]
    return [s for s in listed if outputs[0].get(s) == outputs[1].get(s)]


def execute(name, sql, **where):
    batch(f"DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name} COLLATE utf8mb4_general_ci; DROP DATABASE IF EXISTS d1;", **where)
    _, text = batch(sql, database=name, options=["-vv"], **where)
    return normalise(text)


def check_same(name, found, wanted, sides):
    found, wanted = without_known(name, found), without_known(name, wanted)
    if found != wanted:
        difference = "\n".join(difflib.unified_diff(wanted, found, *sides, lineterm="", n=6))
        raise Failure(tail(difference, 80) if len(difference) > 8000 else difference)


def main(t):
    files = sorted(SQL.glob("*.sql"))
    check(files, "no cases")
    peer = t.cleanup.enter_context(MariaDb(t.directory / "m"))
    with Cluster(t) as cluster:
        host, port = cluster.sql
        for path in files:
            sql, expected = path.read_text(), path.with_suffix(".out")
            ours_only = sql.startswith("-- only: apus")
            name = f"case_{path.stem}"
            if ours_only and not expected.exists():
                with t.case(f"{path.stem}: nothing is refused"):
                    found = statements(execute(name, sql, host=host, port=port))
                    bad = [f"{s}: {line}" for s, part in found for line in part if line.startswith("ERROR")]
                    check(not bad, "\n".join(bad))
                continue
            if UPDATE:
                made = execute(name, sql, host=host, port=port) if ours_only else execute(name, sql, unix=peer.socket)
                expected.write_text("\n".join(made) + "\n")
            wanted = expected.read_text().splitlines()
            if not ours_only:
                with t.case(f"{path.stem} on MariaDB is as written down"):
                    check_same(path.stem, execute(name, sql, unix=peer.socket), wanted, ("expected", "mariadb"))
            with t.case(path.stem):
                found = execute(name, sql, host=host, port=port)
                check_same(path.stem, found, wanted, ("expected", "apus"))
                equal = known_but_equal(path.stem, found, wanted)
                check(not equal, f"no longer different, take off KNOWN: {equal}")


if __name__ == "__main__":
    scenario_main(main)
