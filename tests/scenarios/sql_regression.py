"""The SQL cases of tests/sql: what the mariadb client prints for them on Apus must be what it prints on MariaDB.

Each NAME.sql has its expected output in NAME.out, made by MariaDB (`UPDATE=1 tests/run.py sql_regression`) and checked against
it again in every run. A file whose first line says `-- only: apus` has no MariaDB side: its .out is written by hand or made by
Apus and read by a person. Of an error only number and SQLSTATE count, not its words. Statements on which the two are meant to differ
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
SQL = pathlib.Path(__file__).resolve().parents[1] / "sql"
UPDATE = os.environ.get("UPDATE", "") not in ("", "0")
RULE = "-" * 14

# (file, statement): reason. The statement's output is not compared.
MYSQL_8 = "ours is MySQL 8's answer, MariaDB's differs"
WARNINGS = "warnings of expressions are not counted yet"
KNOWN = {
    ("errors", "SELECT * FROM missing.t"): MYSQL_8,
    ("insert", "INSERT INTO i (k) VALUES ('abc')"): MYSQL_8,
    ("expressions", "SELECT 1 / 0, 1 % 0, 5 DIV 0"): WARNINGS,
    ("expressions", "SELECT '10' + 5, '3 apples' + 1, 'abc' + 0"): WARNINGS,
    ("expressions", "SELECT CAST('12' AS SIGNED), CAST(-1 AS UNSIGNED), CAST(1.5 AS CHAR), CAST('1.239' AS DECIMAL(5,2))"): WARNINGS,
    ("types", "INSERT INTO numbers VALUES (4, 1.234567, 2.5, 0.1, 0.1)"): WARNINGS,
    ("expressions", "SELECT HEX(255), HEX('abc'), x'414243', 0x41"): "the heading spells hexadecimal literals as the parser does",
    ("expressions", "SELECT @x := 5"): "refused: assignment inside of expressions",
    ("select", "SELECT id FROM s WHERE (grp, price) IN ((1, 0.25), (2, 3.00)) ORDER BY id"): "refused: row constructors",
}


def normalise(text):
    """Errors lose their words, blank lines go: the client prints them by verbosity, not by content."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"^(ERROR \d+ \(\w+\)).*$", r"\1", line)
        if line.strip() and line != "Bye":
            lines.append(line)
    return lines


def without_known(name, lines):
    """Drops the output of statements in KNOWN: from the statement's echo to the next echo."""
    kept, skipping, i = [], False, 0
    while i < len(lines):
        if lines[i] == RULE:
            end = lines.index(RULE, i + 1) if RULE in lines[i + 1:] else len(lines) - 1
            skipping = (name, " ".join(lines[i + 1:end])) in KNOWN
            kept += lines[i:end + 1]
            i = end + 1
            continue
        if not skipping:
            kept.append(lines[i])
        i += 1
    return kept


def execute(name, sql, **where):
    batch(f"DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name}; DROP DATABASE IF EXISTS d1;", **where)
    _, text = batch(sql, database=name, options=["-vv"], **where)
    return normalise(text)


def compare(name, found, wanted, sides):
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
            if UPDATE:
                made = execute(name, sql, host=host, port=port) if ours_only else execute(name, sql, unix=peer.socket)
                expected.write_text("\n".join(made) + "\n")
            wanted = expected.read_text().splitlines()
            if not ours_only:
                with t.case(f"{path.stem} on MariaDB is as written down"):
                    compare(path.stem, execute(name, sql, unix=peer.socket), wanted, ("expected", "mariadb"))
            with t.case(path.stem):
                compare(path.stem, execute(name, sql, host=host, port=port), wanted, ("expected", "apus"))


if __name__ == "__main__":
    scenario_main(main)
