#!/usr/bin/env python3
"""Drawn SELECTs over joins, subqueries, derived tables and set operations, answered by the reference and by Apus.

    generate.py SEED COUNT               against an Apus of its own
    generate.py SEED COUNT --port N      against an Apus that runs already
    generate.py SEED COUNT --views       views are among the tables, and each statement is read as a view, too
    generate.py SEED COUNT --groups      groups, aggregates and distinct rows of one table with columns of all types, as data nodes make them

The same seed draws the same tables and statements. Every 200 statements the tables are new. Rows are compared without their order, errors by their number; what Apus refuses
with 1235 is counted. A difference is printed for a person to judge, and makes the run fail.
"""

import argparse
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lib import answers  # noqa: E402
from lib.cluster import Cluster  # noqa: E402
from lib.harness import Scenario  # noqa: E402
from lib.mysql import MySql  # noqa: E402

TABLES = {"t": ["a", "b"], "u": ["a", "c", "d"], "v": ["k", "b"]}
# Merged, computed, joined, with a subquery, of a view, grouped, a set operation.
VIEWS = {
    "vt": (["a", "b"], "SELECT a, b FROM t WHERE b > 1"),
    "vc": (["p", "q"], "SELECT a AS p, COALESCE(b, -1) AS q FROM t WHERE a <> 2"),
    "vj": (["a", "d"], "SELECT t.a, u.d FROM t JOIN u ON t.b = u.a"),
    "vl": (["a", "c", "n"], "SELECT t.a, u.c, u.d IS NULL AS n FROM t LEFT JOIN u ON t.a = u.c AND u.d > 0"),
    "vs": (["k", "b"], "SELECT k, b FROM v WHERE EXISTS (SELECT 1 FROM u WHERE u.a = v.k)"),
    "vv": (["p", "d"], "SELECT vc.p, vj.d FROM vc RIGHT JOIN vj ON vc.q = vj.a WHERE vj.d IS NOT NULL"),
    "vg": (["a", "m"], "SELECT a, MAX(d) AS m FROM u GROUP BY a"),
    "vu": (["a", "b"], "SELECT a, b FROM vt UNION SELECT k, b FROM v"),
}
STATEMENTS_PER_DATABASE = 200
DEPTH_MAX = 2
NOT_YET = 1235


class Query:
    """Draws one statement. A scope is a list of (alias, columns)."""

    def __init__(self, draw, tables):
        self.draw = draw
        self.named = tables
        self.aliases = 0

    def literal(self):
        return self.draw.choice(["0", "1", "2", "3", "NULL", "-1", "5"])

    def column(self, scope):
        alias, columns = self.draw.choice(scope)
        return f"{alias}.{self.draw.choice(columns)}"

    def value(self, scope, depth=0):
        x = self.draw.random()
        if x < 0.55:
            return self.column(scope)
        if x < 0.75:
            return self.literal()
        if x < 0.85:
            return f"({self.value(scope, depth)} + {self.literal()})"
        if x < 0.92 or depth >= DEPTH_MAX:
            return f"COALESCE({self.column(scope)}, {self.literal()})"
        return f"({self.one_value(scope, depth + 1)})"

    def condition(self, scope, depth=0):
        x = self.draw.random()
        negation = self.draw.choice(["", "NOT "])
        if x < 0.4 or depth >= DEPTH_MAX and x >= 0.75:
            operator = self.draw.choice(["=", "=", "=", "<", ">", "<=", "<>", "<=>"])
            return f"{self.value(scope, depth)} {operator} {self.value(scope, depth)}"
        if x < 0.5:
            return f"{self.column(scope)} IS {negation}NULL"
        if x < 0.58:
            return f"({self.condition(scope, depth)} OR {self.condition(scope, depth)})"
        if x < 0.63:
            return f"NOT ({self.condition(scope, depth)})"
        if x < 0.70:
            return f"{self.column(scope)} {negation}IN ({self.literal()}, {self.literal()}, {self.literal()})"
        if x < 0.75:
            return f"{self.column(scope)} BETWEEN {self.literal()} AND {self.literal()}"
        if x < 0.86:
            return f"{self.value(scope, DEPTH_MAX)} {negation}IN ({self.rows(scope, depth + 1)})"
        if x < 0.95:
            return f"{negation}EXISTS ({self.rows(scope, depth + 1)})"
        operator, which = self.draw.choice(["=", "<", ">", "<>"]), self.draw.choice(["ANY", "ALL"])
        return f"{self.value(scope, DEPTH_MAX)} {operator} {which} ({self.rows(scope, depth + 1)})"

    def table(self, depth):
        self.aliases += 1
        alias = f"x{self.aliases}"
        if depth < DEPTH_MAX and self.draw.random() < 0.2:
            return f"({self.derived(depth + 1)}) {alias}", (alias, ["p", "q"])
        name = self.draw.choice(sorted(self.named))
        return f"{name} {alias}", (alias, self.named[name])

    def tables(self, depth, most):
        text, entry = self.table(depth)
        scope = [entry]
        for _ in range(self.draw.randrange(most)):
            more, entry = self.table(depth)
            kind = self.draw.choice(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "CROSS JOIN"])
            conditions = []
            for _ in range(0 if kind == "CROSS JOIN" else self.draw.choice([1, 1, 2])):
                if self.draw.random() < 0.3:
                    conditions.append(self.condition([*scope, entry], DEPTH_MAX))
                else:
                    conditions.append(f"{self.column(scope)} = {self.column([entry])}")
            scope.append(entry)
            text = f"{text} {kind} {more}" + (" ON " + " AND ".join(conditions) if conditions else "")
        return text, scope

    def selection(self, outputs, outer, depth):
        """A subquery; `outputs` makes its list of a scope."""
        text, scope = self.tables(depth, 2)
        seen = scope + (outer if self.draw.random() < 0.6 else [])
        where = f" WHERE {self.condition(seen, depth)}" if self.draw.random() < 0.8 else ""
        return f"SELECT {outputs(scope)} FROM {text}{where}"

    def rows(self, outer, depth):
        return self.selection(self.column, outer, depth)

    def aggregate(self, scope):
        return f"{self.draw.choice(['MAX', 'MIN', 'COUNT', 'SUM'])}({self.column(scope)})"

    def one_value(self, outer, depth):
        return self.selection(self.aggregate, outer, depth)

    def derived(self, depth):
        x = self.draw.random()
        if x < 0.4:
            return self.selection(lambda scope: f"{self.column(scope)} AS p, {self.column(scope)} AS q", [], depth)
        if x < 0.8:
            text, scope = self.tables(depth, 2)
            key = self.column(scope)
            return f"SELECT {key} AS p, {self.aggregate(scope)} AS q FROM {text} GROUP BY {key}"
        operation = self.draw.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
        return f"SELECT a AS p, b AS q FROM t {operation} SELECT k, b FROM v"

    def statement(self):
        text, scope = self.tables(0, 4)
        if self.draw.random() < 0.85:
            text += " WHERE " + " AND ".join(self.condition(scope) for _ in range(self.draw.choice([1, 1, 2])))
        x = self.draw.random()
        if x < 0.6:
            outputs = ", ".join(self.value(scope) for _ in range(self.draw.choice([1, 2, 3])))
            return f"SELECT {self.draw.choice(['', '', 'DISTINCT '])}{outputs} FROM {text}"
        if x < 0.85:
            key, having = self.column(scope), self.draw.choice(["", " HAVING COUNT(*) > 1"])
            return f"SELECT {key}, COUNT(*), {self.aggregate(scope)} FROM {text} GROUP BY {key}{having}"
        return f"SELECT COUNT(*), {self.aggregate(scope)} FROM {text}"


class Groups:
    """Draws statements that group one table. Where texts are equal that do not look the same, and of sums of doubles, nothing is shown that may differ."""

    COLUMNS = {
        "tiny": ("TINYINT", ["NULL", "-128", "0", "1", "1", "2", "127"]),
        "n": ("INT", ["NULL", "-5", "0", "3", "3", "2147483647"]),
        "u": ("BIGINT UNSIGNED", ["NULL", "0", "7", "18446744073709551615"]),
        "big": ("BIGINT", ["NULL", "-9223372036854775808", "9", "9223372036854775807"]),
        "price": ("DECIMAL(12,2)", ["NULL", "0", "0.01", "-1.50", "9999999999.99"]),
        "part": ("DECIMAL(8,5)", ["NULL", "0.06", "0.00001", "-1", "999.99999"]),
        "wide": ("DECIMAL(36,3)", ["NULL", "1.5", "999999999999999999999999999999999.999", "-7"]),
        "day": ("DATE", ["NULL", "'2024-02-29'", "'1000-01-01'", "'9999-12-31'"]),
        "at": ("DATETIME(2)", ["NULL", "'2024-02-29 01:02:03.45'", "'2024-02-29'"]),
        "ts": ("TIMESTAMP NULL", ["NULL", "'2024-02-29 01:02:03'", "'2001-01-01'"]),
        "t": ("TIME(1)", ["NULL", "'-01:00:00.5'", "'838:59:59'", "'00:00:00'"]),
        "y": ("YEAR", ["NULL", "1901", "2024", "0"]),
        "d": ("DOUBLE", ["NULL", "0", "-0.0", "0.5", "1024"]),
        "c": ("CHAR(6)", ["NULL", "'a'", "'A'", "'a '", "'b'", "''"]),
        "v": ("VARCHAR(12)", ["NULL", "'ab'", "'AB'", "'äb'", "'ß'", "'ss'", "'%'"]),
        "cs": ("VARCHAR(12) COLLATE utf8mb4_bin", ["NULL", "'ab'", "'AB'", "'ab '", "''"]),
        "bin": ("VARBINARY(8)", ["NULL", "'ab'", "'AB'", "x'00'", "''"]),
        "e": ("ENUM('low','mid','high')", ["NULL", "'low'", "'mid'", "'high'"]),
        "bits": ("BIT(3)", ["NULL", "0", "5", "7"]),
    }
    INTEGERS = ["tiny", "n", "u", "big"]
    DECIMALS = ["price", "part", "wide"]
    # Equal ones look the same.
    SHOWN = [*INTEGERS, *DECIMALS, "day", "at", "ts", "t", "y", "cs", "bin", "e"]
    # Their sums are decimals.
    ADDED = [*INTEGERS, *DECIMALS, "y", "bits"]

    def __init__(self, draw):
        self.draw = draw

    @classmethod
    def database(cls, draw):
        yield from ["DROP DATABASE IF EXISTS drawn", "CREATE DATABASE drawn COLLATE utf8mb4_general_ci", "USE drawn"]
        columns = [f"{name} {kind}" for name, (kind, _) in cls.COLUMNS.items()]
        yield f"CREATE TABLE g (id INT PRIMARY KEY, {', '.join(columns)}, KEY (n), KEY (day, tiny))"
        rows = ["(" + ", ".join([str(number), *(draw.choice(values) for _, values in cls.COLUMNS.values())]) + ")" for number in range(60)]
        yield f"INSERT INTO g VALUES {', '.join(rows)}"

    def number(self, depth=0):
        x = self.draw.random()
        if depth >= 2 or x < 0.3:
            return self.draw.choice(self.DECIMALS)
        if x < 0.4:
            return self.draw.choice(self.INTEGERS)
        if x < 0.5:
            return self.draw.choice(["1", "-2", "0.5", "1.25", "NULL"])
        return f"({self.number(depth + 1)} {self.draw.choice('+-*')} {self.number(depth + 1)})"

    def aggregate(self):
        x = self.draw.random()
        if x < 0.15:
            return "COUNT(*)"
        if x < 0.3:
            return f"COUNT({self.draw.choice(['', '', 'DISTINCT '])}{self.draw.choice(list(self.COLUMNS))})"
        if x < 0.5:
            distinct = self.draw.choice(["", "", "", "DISTINCT "])
            return f"{self.draw.choice(['SUM', 'AVG'])}({distinct}{self.draw.choice(self.ADDED)})"
        if x < 0.7:
            return f"{self.draw.choice(['MIN', 'MAX'])}({self.draw.choice(self.SHOWN)})"
        return f"{self.draw.choice(['SUM', 'AVG', 'MIN', 'MAX', 'COUNT'])}({self.number()})"

    def condition(self):
        name = self.draw.choice(list(self.COLUMNS))
        value = self.draw.choice(self.COLUMNS[name][1])
        x = self.draw.random()
        if x < 0.5:
            return f"{name} {self.draw.choice(['=', '<', '>=', '<>', '<=>'])} {value}"
        if x < 0.7:
            return f"{name} IS {self.draw.choice(['', 'NOT '])}NULL"
        pattern = self.draw.choice(["'a%'", "'%B'", "'_b'", "'%'", "'a|%' ESCAPE '|'", "'ß'", "''"])
        return f"{self.draw.choice(['c', 'v', 'cs'])} {self.draw.choice(['', 'NOT '])}LIKE {pattern}"

    def statement(self):
        keys = self.draw.sample(list(self.COLUMNS), self.draw.choice([0, 1, 1, 2, 3]))
        shown = [key for key in keys if key in self.SHOWN]
        where = " WHERE " + " AND ".join(self.condition() for _ in range(self.draw.choice([1, 1, 2]))) if self.draw.random() < 0.6 else ""
        if keys and len(shown) == len(keys) and self.draw.random() < 0.15:
            return f"SELECT DISTINCT {', '.join(keys)} FROM g{where}"
        outputs = ", ".join([*shown, *(self.aggregate() for _ in range(self.draw.choice([1, 2, 3])))])
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        rollup = " WITH ROLLUP" if len(shown) == len(keys) and keys and self.draw.random() < 0.1 else ""
        having = f" HAVING {self.aggregate()} IS NOT NULL" if self.draw.random() < 0.2 else ""
        return f"SELECT {outputs} FROM g{where}{grouped}{rollup}{having}"


def database(draw):
    """Statements that make new tables: keys, an index, a unique index, NULLs in what is joined."""
    some = lambda: draw.choice(["NULL", 0, 1, 2, 3, 4, 5])  # noqa: E731
    unique = [number if draw.random() < 0.7 else "NULL" for number in draw.sample(range(9), 6)]
    keys = draw.sample([(k, b) for k in range(4) for b in range(3)], 8)
    rows = {
        "t": [(a, some()) for a in draw.sample(range(8), 6)],
        "u": [(some(), unique[i], some(), i) for i in range(6)],
        "v": keys,
    }
    yield from ["DROP DATABASE IF EXISTS drawn", "CREATE DATABASE drawn COLLATE utf8mb4_general_ci", "USE drawn"]
    yield "CREATE TABLE t (a INT PRIMARY KEY, b INT, KEY (b))"
    yield "CREATE TABLE u (a INT, c INT, d BIGINT, pk INT PRIMARY KEY, KEY (a), UNIQUE KEY (c))"
    yield "CREATE TABLE v (k INT, b INT, PRIMARY KEY (k, b))"
    for name, list_ in rows.items():
        yield f"INSERT INTO {name} VALUES " + ", ".join("(" + ", ".join(map(str, row)) + ")" for row in list_)


def as_view(connection, sql):
    """The answer by way of a view that is the statement."""
    names = ", ".join(f"c{number}" for number in range(connection._result.field_count))
    made = answer(connection, f"CREATE OR REPLACE VIEW drawn_view ({names}) AS {sql}")
    return answer(connection, "SELECT * FROM drawn_view") if made == [] else made


def answer(connection, sql):
    try:
        connection.query(sql)
    except answers.ServerError as error:
        return error.args[0]
    return sorted(map(repr, connection._result.rows or ()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--port", type=int)
    parser.add_argument("--views", action="store_true")
    parser.add_argument("--groups", action="store_true")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    scenario = Scenario("generate")
    with scenario.cleanup:
        where = {"unix_socket": str(scenario.cleanup.enter_context(MySql(scenario.directory / "m")).socket)}
        if arguments.port:
            ours = {"host": "127.0.0.1", "port": arguments.port}
        else:
            host, port = scenario.cleanup.enter_context(Cluster(scenario)).sql
            ours = {"host": host, "port": port}
        sides = [answers.connect(**where), answers.connect(**ours)]
        tables = TABLES | ({name: columns for name, (columns, _) in VIEWS.items()} if arguments.views else {})
        equal = refused = different = 0
        for number in range(arguments.count):
            if number % STATEMENTS_PER_DATABASE == 0:
                views = [f"CREATE VIEW {name} AS {text}" for name, (_, text) in VIEWS.items()] if arguments.views else []
                for sql in [*(Groups.database if arguments.groups else database)(draw), *views]:
                    for side in sides:
                        side.query(sql)
            sql = (Groups(draw) if arguments.groups else Query(draw, tables)).statement()
            wanted, found = (answer(side, sql) for side in sides)
            if wanted == found and isinstance(wanted, list) and arguments.views:
                wanted, found = (as_view(side, sql) for side in sides)
            if wanted == found:
                equal += 1
            elif found == NOT_YET:
                refused += 1
            else:
                different += 1
                print(f"{sql};\n  wanted {wanted}\n  found  {found}")
        print(f"seed {arguments.seed}: {equal} equal, {refused} refused, {different} different")
        return different > 0


if __name__ == "__main__":
    sys.exit(main())
