"""Random statements over two tables: joins, subqueries, derived tables, CTEs, LATERAL, windows, ROLLUP, set operations, changes.

Expressions are those of `generator`. No column name is in both tables, so a name means the same wherever it stands. What a server may choose
freely is not drawn: each order ends with the primary keys, texts that are equal by their collation are not grouped, a row is changed from one row at most.
"""

from .generator import NUMBERS, TEXTS, TIMES, Generator, Tree

DECIDED = ("number", "time")


class Queries(Generator):
    def __init__(self, seed):
        super().__init__(seed)
        self.keys = {"t": "k", "u": "h"}
        self.tables = {}
        self.pk = "k"

    def make(self, name, letter):
        kinds = [("number", t) for t in NUMBERS] + [("text", t) for t in TEXTS] + [("time", t) for t in TIMES]
        columns = [(f"{letter}0", "number", "INT")] + [(f"{letter}{i}", *self.one(kinds)) for i in range(1, self.random.randint(3, 5))]
        indexed = [n for n, _, t in columns if t != "TEXT" and self.random.random() < 0.4]
        parts = [f"{self.keys[name]} INT PRIMARY KEY"] + [f"{n} {t}" for n, _, t in columns] + [f"KEY i_{n} ({n})" for n in indexed]
        self.tables[name] = columns
        return f"CREATE TABLE {name} ({', '.join(parts)})"

    def fill(self, name, count):
        values = [f"({', '.join([str(i)] + [self.value(k, t) for _, k, t in self.tables[name]])})" for i in range(1, count + 1)]
        return f"INSERT INTO {name} VALUES {', '.join(values)}"

    # Scopes

    def within(self, *names):
        """Expressions over these tables from here on."""
        self.columns = [column for name in names for column in self.tables[name]]
        self.pk = self.one([self.keys[name] for name in names])

    def column(self, kind):
        fitting = [n for n, k, _ in self.columns if k == kind]
        if kind == "number" and (not fitting or self.random.random() < 0.2):
            return Tree(self.pk, kind=kind)
        return Tree(self.one(fitting), kind=kind) if fitting else self.literal(kind)

    def over(self, names, make):
        saved = self.columns, self.pk
        self.within(*names)
        made = make()
        self.columns, self.pk = saved
        return made

    def decided(self, name):
        """A column whose equal values look the same."""
        fitting = [n for n, k, t in self.tables[name] if k in DECIDED or "bin" in t]
        return self.one(fitting)

    def meeting(self):
        """A condition that joins t and u."""
        same = [(a, b) for a, k, _ in self.tables["t"] for b, l, _ in self.tables["u"] if k == l]
        a, b = self.one([("k", "h"), ("t0", "u0"), ("t0", "h"), self.one(same)])
        both = lambda: self.over(("t", "u"), lambda: self.truth(0))  # noqa: E731
        return self.one([
            lambda: Tree(f"{a} = {b}"),
            lambda: Tree(f"{a} = {b}"),
            lambda: Tree(f"{a} = {b} AND {{}}", both()),
            lambda: Tree(f"{a} {self.one(['<', '>=', '<=>'])} {b}"),
            both,
        ])()

    def join(self):
        kind = self.one(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN"])
        return Tree(f"t {kind} u ON {{}}", self.meeting())

    # Statements

    def statement(self):
        both, t, u = ("t", "u"), ("t",), ("u",)
        any_of = lambda names, depth: self.over(names, lambda: self.any(depth))  # noqa: E731
        truth_of = lambda names, depth: self.over(names, lambda: self.truth(depth))  # noqa: E731
        aggregate_of = lambda names: self.over(names, self.aggregate)  # noqa: E731
        make = self.one([
            lambda: Tree("SELECT k, h, {} AS x FROM {} ORDER BY k, h", any_of(both, 1), self.join()),
            lambda: Tree("SELECT k, h FROM {} WHERE {} ORDER BY k, h", self.join(), truth_of(both, 1)),
            lambda: Tree("SELECT k, {} AS x FROM {} GROUP BY k ORDER BY k", aggregate_of(both), self.join()),
            lambda: Tree("SELECT COUNT(*) AS n, {} AS x FROM {} WHERE {}", aggregate_of(both), self.join(), truth_of(both, 0)),
            lambda: self.derived(),
            lambda: self.derived(),
            lambda: Tree("SELECT k, (SELECT {} FROM u WHERE {}) AS x FROM t ORDER BY k", aggregate_of(u), truth_of(both, 0)),
            lambda: Tree("SELECT k FROM t WHERE {} ORDER BY k", self.membership()),
            lambda: Tree("SELECT k FROM t WHERE {} OR {} ORDER BY k", truth_of(t, 0), self.membership()),
            lambda: Tree("SELECT k, {} AS x FROM t ORDER BY k", self.membership()),
            lambda: Tree("SELECT k, x FROM t, LATERAL (SELECT {} AS x FROM u WHERE {}) d ORDER BY k", aggregate_of(both), truth_of(both, 0)),
            lambda: Tree("SELECT k, h, x FROM t JOIN LATERAL (SELECT h, {} AS x FROM u WHERE {}) d ON 1 ORDER BY k, h",
                         any_of(both, 0), truth_of(both, 0)),
            lambda: self.window(),
            lambda: self.window(),
            lambda: self.rollup(),
            lambda: self.set_operation(),
            lambda: self.change(),
            lambda: self.change(),
        ])
        return make()

    def derived(self):
        kind = self.one(["number", "text", "time"])
        inner = self.over(("u",), lambda: getattr(self, kind)(1))
        where = self.over(("u",), lambda: self.truth(0))
        self.tables["d"], self.keys["d"] = [("x", kind, "any")], "h"
        outer = self.over(("d",), lambda: self.any(1))
        test = self.over(("d",), lambda: self.truth(0))
        joined = self.over(("t", "d"), lambda: self.truth(0))
        return self.one([
            lambda: Tree("SELECT h, {} AS y FROM (SELECT h, {} AS x FROM u WHERE {}) d ORDER BY h", outer, inner, where),
            lambda: Tree("SELECT h FROM (SELECT h, {} AS x FROM u WHERE {}) d WHERE {} ORDER BY h", inner, where, test),
            lambda: Tree("WITH d AS (SELECT h, {} AS x FROM u) SELECT k, h, x FROM t LEFT JOIN d ON {} ORDER BY k, h", inner, joined),
            lambda: Tree("WITH d (h, x) AS (SELECT h, {} FROM u WHERE {}) SELECT a.h, b.h AS g FROM d a JOIN d b ON a.x = b.x ORDER BY a.h, b.h",
                         inner, where),
            lambda: Tree("SELECT k, x FROM t JOIN (SELECT u0, {} AS x FROM u GROUP BY u0) d ON t0 = u0 ORDER BY k",
                         self.over(("u",), self.aggregate)),
        ])()

    def membership(self):
        kind = self.one(["number", "number", "text", "time"])
        value = self.over(("t",), lambda: getattr(self, kind)(0))
        found = self.over(("u",), lambda: getattr(self, kind)(0))
        where = self.over(self.one([("u",), ("t", "u")]), lambda: self.truth(0))
        return self.one([
            lambda: Tree("({} " + self.one(["IN", "NOT IN"]) + " (SELECT {} FROM u WHERE {}))", value, found, where),
            lambda: Tree("(" + self.one(["", "NOT "]) + "EXISTS (SELECT 1 FROM u WHERE {}))", where),
            lambda: Tree("({} " + self.one(["=", "<", ">=", "<>"]) + " " + self.one(["ANY", "ALL"]) + " (SELECT {} FROM u WHERE {}))",
                         value, found, where),
            lambda: Tree("({} " + self.one(["=", "<", "<=>"]) + " (SELECT {}({}) FROM u WHERE {}))",
                         value, Tree(self.one(["MIN", "MAX"])), found, where),
            lambda: Tree("((t0, {}) IN (SELECT u0, {} FROM u WHERE {}))", value, found, where),
        ])()

    def window(self):
        part = self.one(["", f"PARTITION BY {self.decided('t')} "])
        order = self.over(("t",), lambda: self.one([self.number, self.time])(1))
        frame = self.one(["", "", "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", "ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING",
                          "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING"])
        e = lambda: self.over(("t",), lambda: self.any(1))  # noqa: E731
        n = lambda: self.over(("t",), lambda: self.number(1))  # noqa: E731
        f = self.one([
            lambda: Tree(self.one(["ROW_NUMBER()", "RANK()", "DENSE_RANK()", "NTILE(3)", "CUME_DIST()", "PERCENT_RANK()"])),
            lambda: Tree(self.one(["LAG", "LEAD"]) + "({}" + self.one(["", ", 2"]) + ")", e()),
            lambda: Tree(self.one(["FIRST_VALUE", "LAST_VALUE"]) + "({})", e()),
            lambda: Tree("NTH_VALUE({}, 2)", e()),
            lambda: Tree(self.one(["SUM", "AVG"]) + "({})", n()),
            lambda: Tree(self.one(["MIN", "MAX", "COUNT"]) + "({})", e()),
        ])()
        return Tree(f"SELECT k, {{}} OVER ({part}ORDER BY {{}}, k {frame}) AS x FROM t ORDER BY k", f, order)

    def rollup(self):
        a, b = self.decided("t"), self.decided("t")
        keys = a if a == b else f"{a}, {b}"
        aggregate = self.over(("t",), self.aggregate)
        return Tree(f"SELECT {keys}, GROUPING({a}) AS g, {{}} AS x FROM t GROUP BY {keys} WITH ROLLUP", aggregate)

    def set_operation(self):
        kind = self.one(DECIDED)
        a, b = (self.over((name,), lambda: getattr(self, kind)(1)) for name in ("t", "u"))
        operation = self.one(["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "UNION ALL"])
        return Tree(f"SELECT {{}} AS x FROM t {operation} SELECT {{}} FROM u", a, b)

    def change(self):
        name, kind, _ = self.one(self.tables["t"])
        value = lambda names: self.over(names, lambda: getattr(self, kind)(1))  # noqa: E731
        truth = lambda names: self.over(names, lambda: self.truth(0))  # noqa: E731
        columns = [n for n, _, _ in self.tables["t"]]
        row = lambda: [self.over(("u",), lambda k=k: getattr(self, k)(0)) for _, k, _ in self.tables["t"]]  # noqa: E731
        selected = f"SELECT h + {self.one(['4', '100'])}" + ", {}" * len(columns) + " FROM u WHERE {}"
        return self.one([
            lambda: Tree(f"UPDATE t JOIN u ON k = h SET {name} = {{}} WHERE {{}}", value(("t", "u")), truth(("t", "u"))),
            lambda: Tree(f"UPDATE t SET {name} = {{}} WHERE {{}}", value(("t",)), self.membership()),
            lambda: Tree("DELETE FROM t WHERE {}", self.membership()),
            lambda: Tree("DELETE t FROM t JOIN u ON {} WHERE {}", self.meeting(), truth(("t", "u"))),
            lambda: Tree(f"REPLACE INTO t {selected}", *row(), truth(("u",))),
            lambda: Tree(f"INSERT IGNORE INTO t {selected}", *row(), truth(("u",))),
            lambda: Tree(f"INSERT INTO t {selected} ON DUPLICATE KEY UPDATE {name} = {{}}", *row(), truth(("u",)), value(("t",))),
            lambda: Tree(f"INSERT INTO t {selected} ON DUPLICATE KEY UPDATE {name} = VALUES({name})", *row(), truth(("u",))),
        ])()

    def script(self, count):
        yield self.make("t", "t")
        yield self.make("u", "u")
        rows = self.fill("t", 8)
        yield rows
        yield self.fill("u", 6)
        for _ in range(count):
            statement = self.statement()
            yield statement
            if not str(statement).startswith(("SELECT", "WITH")):
                yield "SELECT * FROM t ORDER BY k"
                yield "DELETE FROM t"
                yield rows


# What is drawn of a seed.
KINDS = {"expressions": Generator, "queries": Queries}
