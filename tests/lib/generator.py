"""Random tables, rows and statements over one table, repeatable by seed, and the smallest statement that still differs.

A statement is a tree: a text with {} for each part, and the parts. To shrink it is to put a part in the place of the whole, or NULL in
the place of a part.
"""

import random

from . import answers, cases

NUMBERS = ["TINYINT", "SMALLINT UNSIGNED", "INT", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED", "DECIMAL(6,2)", "DECIMAL(20,5)", "DOUBLE"]
TEXTS = ["VARCHAR(12)", "CHAR(5)", "TEXT", "VARCHAR(12) COLLATE utf8mb4_bin"]
TIMES = ["DATE", "DATETIME", "DATETIME(3)", "TIME", "TIMESTAMP NULL"]
WORDS = ["''", "'a'", "'A'", "'abc'", "'Abc '", "'b%'", "'10'", "'-3'", "'2.5'", "'ä'", "'zebra'", "'a_c'", "'2024-02-29'", "'10:11:12'"]
MOMENTS = {
    "DATE": ["'2024-02-29'", "'1999-12-31'", "'2000-01-01'", "'2038-01-19'"],
    "DATETIME": ["'2024-02-29 12:30:45'", "'1999-12-31 23:59:59'", "'2000-01-01'"],
    "DATETIME(3)": ["'2024-02-29 12:30:45.678'", "'1999-12-31 23:59:59.999'"],
    "TIME": ["'10:11:12'", "'-01:30:00'", "'00:00:00'", "'100:00:00'"],
    "TIMESTAMP NULL": ["'2024-02-29 12:30:45'", "'2001-09-09 01:46:40'"],
}
INTEGERS = ["0", "1", "-1", "2", "3", "7", "10", "100", "-128", "255"]
DECIMALS = ["0.5", "1.25", "-2.75", "10.00", "0.1"]


class Tree:
    def __init__(self, form, *parts, kind="any"):
        self.form, self.parts, self.kind = form, list(parts), kind

    def __str__(self):
        return self.form.format(*self.parts)

    def places(self):
        """Each (tree, number of a part) in it."""
        for i, part in enumerate(self.parts):
            if isinstance(part, Tree):
                yield self, i
                yield from part.places()


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.columns = []

    def one(self, list_):
        return self.random.choice(list_)

    def table(self):
        count = self.random.randint(3, 6)
        kinds = [("number", t) for t in NUMBERS] + [("text", t) for t in TEXTS] + [("time", t) for t in TIMES]
        self.columns = [(f"c{i}", *self.one(kinds)) for i in range(count)]
        parts = ["k INT PRIMARY KEY"] + [f"{n} {t}" for n, _, t in self.columns]
        indexed = [n for n, _, t in self.columns if t != "TEXT" and self.random.random() < 0.4]
        return [f"CREATE TABLE t ({', '.join(parts + [f'KEY i_{n} ({n})' for n in indexed])})"]

    def value(self, kind, declared):
        if self.random.random() < 0.15:
            return "NULL"
        if kind == "number":
            return self.one(INTEGERS[:8] if "UNSIGNED" not in declared else ["0", "1", "2", "7", "100"]) if self.random.random() < 0.7 \
                or "INT" in declared else self.one(DECIMALS)
        return self.one([w for w in WORDS if len(w) <= 7]) if kind == "text" else self.one(MOMENTS[declared])

    def rows(self, count=8):
        return [f"INSERT INTO t VALUES ({', '.join([str(i)] + [self.value(k, t) for _, k, t in self.columns])})" for i in range(1, count + 1)]

    # Expressions

    def column(self, kind):
        fitting = [n for n, k, _ in self.columns if k == kind]
        if kind == "number" and (not fitting or self.random.random() < 0.2):
            return Tree("k", kind=kind)
        return Tree(self.one(fitting), kind=kind) if fitting else self.literal(kind)

    def literal(self, kind):
        if self.random.random() < 0.08:
            return Tree("NULL", kind=kind)
        if kind == "number":
            return Tree(self.one(INTEGERS + DECIMALS), kind=kind)
        if kind == "text":
            return Tree(self.one(WORDS).replace("{", "{{"), kind=kind)
        return Tree(self.one(["DATE'2024-02-29'", "TIMESTAMP'2024-02-29 12:30:45'", "DATE'2000-01-01'"]), kind=kind)

    def number(self, depth):
        if depth == 0:
            return self.column("number") if self.random.random() < 0.6 else self.literal("number")
        n, s, d = (lambda: self.number(depth - 1)), (lambda: self.text(depth - 1)), (lambda: self.time(depth - 1))
        make = self.one([
            lambda: Tree("({} " + self.one(["+", "-", "*", "/", "DIV", "%"]) + " {})", n(), n(), kind="number"),
            lambda: Tree(self.one(["ABS", "CEIL", "FLOOR", "ROUND", "SIGN", "-"]) + "({})", n(), kind="number"),
            lambda: Tree("ROUND({}, 1)", n(), kind="number"),
            lambda: Tree("({} " + self.one(["&", "|", "^"]) + " {})", n(), n(), kind="number"),
            lambda: Tree(self.one(["LENGTH", "CHAR_LENGTH", "ASCII"]) + "({})", s(), kind="number"),
            lambda: Tree("INSTR({}, {})", s(), s(), kind="number"),
            lambda: Tree(self.one(["YEAR", "MONTH", "DAY", "HOUR", "TO_DAYS", "DAYOFWEEK"]) + "({})", d(), kind="number"),
            lambda: Tree("DATEDIFF({}, {})", d(), d(), kind="number"),
            lambda: Tree("CAST({} AS " + self.one(["SIGNED", "DECIMAL(12,3)", "DOUBLE"]) + ")", self.any(depth - 1), kind="number"),
            lambda: Tree("IF({}, {}, {})", self.truth(depth - 1), n(), n(), kind="number"),
            lambda: Tree(self.one(["IFNULL", "COALESCE", "NULLIF"]) + "({}, {})", n(), n(), kind="number"),
            lambda: Tree(self.one(["GREATEST", "LEAST"]) + "({}, {})", n(), n(), kind="number"),
            lambda: self.truth(depth - 1),
            lambda: self.column("number"),
        ])
        return make()

    def text(self, depth):
        if depth == 0:
            return self.column("text") if self.random.random() < 0.6 else self.literal("text")
        s, n = (lambda: self.text(depth - 1)), (lambda: self.number(depth - 1))
        make = self.one([
            lambda: Tree("CONCAT({}, {})", s(), self.any(depth - 1), kind="text"),
            lambda: Tree(self.one(["UPPER", "LOWER", "TRIM", "REVERSE", "HEX"]) + "({})", s(), kind="text"),
            lambda: Tree(self.one(["LEFT", "RIGHT", "SUBSTRING"]) + "({}, {})", s(), Tree(self.one(["0", "1", "2", "-1", "k"])), kind="text"),
            lambda: Tree("REPLACE({}, {}, {})", s(), s(), s(), kind="text"),
            lambda: Tree("LPAD({}, {}, '.')", s(), Tree(self.one(["3", "6", "k"])), kind="text"),
            lambda: Tree("IF({}, {}, {})", self.truth(depth - 1), s(), s(), kind="text"),
            lambda: Tree(self.one(["IFNULL", "COALESCE", "NULLIF"]) + "({}, {})", s(), s(), kind="text"),
            lambda: Tree("CAST({} AS CHAR)", self.any(depth - 1), kind="text"),
            lambda: Tree("DATE_FORMAT({}, '%Y-%m-%d')", self.time(depth - 1), kind="text"),
            lambda: self.column("text"),
        ])
        return make()

    def time(self, depth):
        if depth == 0:
            return self.column("time") if self.random.random() < 0.7 else self.literal("time")
        d = lambda: self.time(depth - 1)  # noqa: E731
        make = self.one([
            lambda: Tree("({} + INTERVAL " + self.one(INTEGERS[:8]) + " " + self.one(["DAY", "MONTH", "HOUR", "YEAR"]) + ")", d(), kind="time"),
            lambda: Tree(self.one(["DATE", "LAST_DAY"]) + "({})", d(), kind="time"),
            lambda: Tree(self.one(["IFNULL", "COALESCE"]) + "({0}, {0})", self.column("time"), kind="time"),
            lambda: Tree("CAST({} AS " + self.one(["DATE", "DATETIME"]) + ")", d(), kind="time"),
            lambda: self.column("time"),
        ])
        return make()

    def any(self, depth):
        return self.one([self.number, self.number, self.text, self.time])(depth)

    def truth(self, depth):
        part = self.one([self.number, self.number, self.text, self.text, self.time])
        a = lambda: part(max(depth - 1, 0))  # noqa: E731
        b = lambda: self.truth(depth - 1)  # noqa: E731
        forms = [
            lambda: Tree("({} " + self.one(["=", "<>", "<", "<=", ">", ">=", "<=>"]) + " {})", a(), a(), kind="number"),
            lambda: Tree("({} " + self.one(["=", "<", ">="]) + " {})", self.any(0), self.any(0), kind="number"),
            lambda: Tree("({} IS " + self.one(["NULL", "NOT NULL"]) + ")", a(), kind="number"),
            lambda: Tree("({} " + self.one(["IN", "NOT IN"]) + " ({}, {}))", a(), a(), a(), kind="number"),
            lambda: Tree("({} BETWEEN {} AND {})", a(), a(), a(), kind="number"),
            lambda: Tree("({} " + self.one(["LIKE", "NOT LIKE"]) + " {})", self.text(0), self.literal("text"), kind="number"),
        ]
        if depth > 0:
            forms += [lambda: Tree("({} " + self.one(["AND", "OR", "XOR"]) + " {})", b(), b(), kind="number"),
                      lambda: Tree("(NOT {})", b(), kind="number")]
        return self.one(forms)()

    def aggregate(self):
        e = self.one([self.number, self.number, self.text, self.time])(1)
        functions = ["COUNT", "MIN", "MAX"] + (["SUM", "AVG"] if e.kind == "number" else [])
        return Tree(self.one(functions) + self.one(["({})", "({})", "(DISTINCT {})"]), e)

    def statement(self):
        c = self.one(self.columns)
        make = self.one([
            lambda: Tree("SELECT k, {} AS x FROM t ORDER BY k", self.any(2)),
            lambda: Tree("SELECT k, {} AS x, {} AS y FROM t ORDER BY k", self.any(1), self.any(1)),
            lambda: Tree("SELECT k FROM t WHERE {} ORDER BY k", self.truth(1)),
            lambda: Tree("SELECT k FROM t WHERE {} AND {} ORDER BY k", self.truth(0), self.truth(1)),
            lambda: Tree("SELECT {} AS x FROM t WHERE {}", self.aggregate(), self.truth(1)),
            lambda: Tree(f"SELECT {c[0]}, {{}} AS x FROM t GROUP BY {c[0]} ORDER BY {c[0]}, x", self.aggregate())
            if "bin" in c[2] or c[1] != "text" else Tree("SELECT COUNT(*) AS n FROM t GROUP BY {} ORDER BY n", Tree(c[0])),
            lambda: Tree("SELECT k FROM t ORDER BY {} " + self.one(["", "DESC"]) + ", k LIMIT " + self.one(["3", "5", "2, 4"]), self.any(1)),
            lambda: Tree(f"UPDATE t SET {c[0]} = {{}} WHERE {{}}", self.one([self.number, self.text, self.time])(1)
                         if self.random.random() < 0.3 else {"number": self.number, "text": self.text, "time": self.time}[c[1]](1), self.truth(0)),
            lambda: Tree("DELETE FROM t WHERE {} ORDER BY k LIMIT 1", self.truth(1)),
        ])
        return make()

    def script(self, count):
        """Statements, the rows put back wherever a change may have gone to another place on one side."""
        yield from self.table()
        rows = self.rows()
        yield from rows
        for _ in range(count):
            statement = self.statement()
            yield statement
            if not str(statement).startswith("SELECT"):
                yield "SELECT * FROM t ORDER BY k"
                yield "DELETE FROM t"
                yield "INSERT INTO t VALUES " + ", ".join(row.split(" VALUES ")[1] for row in rows)


def shrink(tree, differs):
    """The smallest tree found that still differs; `differs` asks both sides about a statement."""
    smaller = True
    while smaller:
        smaller = False
        for holder, i in list(tree.places()):
            part = holder.parts[i]
            for candidate in [p for p in part.parts if isinstance(p, Tree)] + ([Tree("NULL")] if part.form != "NULL" else []):
                holder.parts[i] = candidate
                if differs(str(tree)):
                    smaller = True
                    break
                holder.parts[i] = part
            if smaller:
                break
    return tree


def compared(script, mysql, ours):
    """Asks two connections a script, each in a database of its own; (statements asked, [(smallest statement, wanted, found)] of those
    that differ and that nothing explains, {explanation: count} of the others)."""
    asked, found, explained, spoiled = 0, [], {}, False
    for side in (mysql, ours):
        for text in ("DROP DATABASE IF EXISTS made", "CREATE DATABASE made COLLATE utf8mb4_general_ci", "USE made"):
            side.query(text)

    def both(text):
        return answers.ask(mysql, text), answers.ask(ours, text)

    def unequal(text):
        pair = both(text)
        # A part in a wrong place is no statement.
        if pair[0][0].startswith("! 1064"):
            return False
        return not cases.same(text, *pair) and not cases.explanation(text, *pair)

    for statement in script:
        text = str(statement)
        wanted, answer = both(text)
        asked += 1
        if isinstance(statement, Tree):
            spoiled = False
        if spoiled or cases.same(text, wanted, answer):
            continue
        # What a change has left is not looked at when the change itself differs.
        spoiled = not text.startswith(("SELECT", "WITH"))
        word = cases.explanation(text, wanted, answer)
        if word:
            explained[word] = explained.get(word, 0) + 1
            continue
        if isinstance(statement, Tree) and not spoiled:
            text = str(shrink(statement, unequal))
            wanted, answer = both(text)
        found.append((text, wanted, answer))
    return asked, found, explained
