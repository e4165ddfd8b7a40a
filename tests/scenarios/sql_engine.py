"""The SQL engine against a model: every error number that programs act on, ranges against a filter in Python, LIMIT on changes and
locks, big sorted, grouped and streamed results in bounded memory, and the statements that tools send (tests/sql/tools.sql)."""

import pathlib
import re
import threading
import time

import pymysql
import pymysql.cursors

from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, rss_kib, run, scenario_main, wait_until

LIMIT_SECONDS = (180, 600)
SIDE_BY_SIDE = True
TOOLS = pathlib.Path(__file__).resolve().parents[1] / "sql" / "tools.sql"
BIG_ROWS = 1_000_000 if FULL else 60_000
# A result that is streamed may not grow the SQL node by more; BIG_ROWS rows are several times as much in the long form.
STREAM_KIB = 48 << 10

ERRORS = [
    ("INSERT INTO t VALUES (1, 1, 2, 'a', 1, 1)", 1062),
    ("INSERT INTO t VALUES (2, 1, 1, 'a', 1, 1)", 1062),
    ("SELECT * FROM nope", 1146), ("SELEC 1", 1064), ("SELECT nope FROM t", 1054),
    ("INSERT INTO t VALUES (2, NULL, 2, 'a', 1, 1)", 1048), ("INSERT INTO t (id, k) VALUES (2, 1)", 1364),
    ("INSERT INTO t VALUES (2, 1, 2, 'a', 300, 1)", 1264), ("INSERT INTO t VALUES (2, 1, 2, 'abcdef', 1, 1)", 1406),
    ("USE nope", 1049), ("CREATE DATABASE engine", 1007), ("DROP DATABASE nope", 1008),
    ("CREATE TABLE t (id INT PRIMARY KEY)", 1050), ("DROP TABLE nope", 1051),
    ("CREATE EVENT e ON SCHEDULE EVERY 0 DAY DO DELETE FROM t", 1542),
    ("SELECT * FROM information_schema.nope", 1109), ("DELETE FROM information_schema.TABLES", 1044),
]


def refused(cursor, statement, number):
    try:
        cursor.execute(statement)
    except pymysql.MySQLError as error:
        check_equal(error.args[0], number, statement)
        return
    check(False, f"{statement} was not refused")


def with_value(x, test):
    return x is not None and test(x)


RANGES = [
    ("id BETWEEN 10 AND 20 AND id > 15", lambda i, k, s: 15 < i <= 20),
    ("id > 15 AND id BETWEEN 10 AND 20", lambda i, k, s: 15 < i <= 20),
    ("id BETWEEN 10 AND 20 AND id BETWEEN 15 AND 30", lambda i, k, s: 15 <= i <= 20),
    ("id >= 10 AND id > 12 AND id < 30 AND id <= 25", lambda i, k, s: 12 < i <= 25),
    ("id BETWEEN 20 AND 10", lambda i, k, s: False),
    ("id IN (5, 6, 7, 900, 5) AND id BETWEEN 6 AND 1000", lambda i, k, s: i in (6, 7, 900)),
    ("id = 5 AND id BETWEEN 6 AND 10", lambda i, k, s: False),
    ("id IN (1, 2, 3) AND id = 2", lambda i, k, s: i == 2),
    ("k = 7 AND id > 100", lambda i, k, s: k == 7 and i > 100),
    ("k BETWEEN 5 AND 9 AND k <> 7", lambda i, k, s: with_value(k, lambda k: 5 <= k <= 9 and k != 7)),
    ("k < 5", lambda i, k, s: with_value(k, lambda k: k < 5)),
    ("k IS NULL", lambda i, k, s: k is None),
    ("k > 190", lambda i, k, s: with_value(k, lambda k: k > 190)),
    ("s = 'v3' AND k > 100", lambda i, k, s: s == "v3" and with_value(k, lambda k: k > 100)),
    ("s = 'v3' AND k BETWEEN 10 AND 20 AND k BETWEEN 15 AND 30",
     lambda i, k, s: s == "v3" and with_value(k, lambda k: 15 <= k <= 20)),
    ("s > 'v3' AND s <= 'v5'", lambda i, k, s: s in ("v4", "v5")),
    ("k BETWEEN 1 AND 3 OR k BETWEEN 10 AND 12 OR k = 50 OR k > 197",
     lambda i, k, s: with_value(k, lambda k: 1 <= k <= 3 or 10 <= k <= 12 or k == 50 or k > 197)),
    ("k BETWEEN 1 AND 10 OR k BETWEEN 5 AND 20 OR k IN (7, 8, 30)", lambda i, k, s: with_value(k, lambda k: 1 <= k <= 20 or k == 30)),
    ("(id BETWEEN 1 AND 5 OR id BETWEEN 500 AND 510) AND k > 20",
     lambda i, k, s: (1 <= i <= 5 or 500 <= i <= 510) and with_value(k, lambda k: k > 20)),
    ("k > 2.5 AND k < 4.5", lambda i, k, s: k in (3, 4)),
    ("id BETWEEN -5 AND 3", lambda i, k, s: i <= 3),
    ("id > 99999999999", lambda i, k, s: False),
    ("id < 99999999999", lambda i, k, s: True),
    ("id IN (1, 99999999999, NULL, 3)", lambda i, k, s: i in (1, 3)),
]


def ranges(t, ask):
    with t.case("ranges, alone and several on one column, select what a filter selects"):
        ask("CREATE TABLE r (id INT PRIMARY KEY, k INT, s VARCHAR(10), KEY (k), KEY (s, k))")
        rows = [(i, None if i % 17 == 0 else (i * 7) % 200, None if i % 13 == 0 else f"v{i % 10}") for i in range(1, 1001)]
        ask.cursor.executemany("INSERT INTO r VALUES (%s, %s, %s)", rows)
        for condition, test in RANGES:
            wanted = [r for r in rows if test(*r)]
            ids = tuple((r[0],) for r in wanted)
            total = [r[1] for r in wanted if r[1] is not None]
            check_equal(tuple(sorted(ask(f"SELECT id FROM r WHERE {condition}"))), ids, condition)
            found = ask(f"SELECT COUNT(*), SUM(k) FROM r WHERE {condition}")
            check_equal(found, ((len(wanted), sum(total) if total else None),), f"count and sum, {condition}")
            check_equal(len(ask(f"SELECT id FROM r WHERE {condition} FOR UPDATE")), len(wanted), f"locked, {condition}")
    with t.case("LIMIT on changes: as many as asked, in the order asked"):
        count = ask.cursor.execute
        check_equal(count("UPDATE r SET s = 'z' WHERE k IS NOT NULL LIMIT 10"), 10, "updated")
        check_equal(len(ask("SELECT id FROM r WHERE s = 'z'")), 10, "changed rows")
        last = sorted((i for i, in ask("SELECT id FROM r WHERE s = 'z'")), reverse=True)
        check_equal(count("DELETE FROM r WHERE s = 'z' ORDER BY id DESC LIMIT 4"), 4, "deleted")
        check_equal(sorted(i for i, in ask("SELECT id FROM r WHERE s = 'z'")), sorted(last[4:]), "left")
        check_equal(count("DELETE FROM r WHERE s = 'z' LIMIT 100"), 6, "deleted")
        check_equal(count("UPDATE r SET k = k + 1 WHERE k IS NOT NULL"), len(ask("SELECT 1 FROM r WHERE k IS NOT NULL")), "all")
        check_equal(count("UPDATE r SET s = 'y' ORDER BY k DESC, id LIMIT 3"), 3, "in order")
        top = ask("SELECT id FROM r ORDER BY k DESC, id LIMIT 3")
        check_equal(sorted(ask("SELECT id FROM r WHERE s = 'y'")), sorted(top), "the first in order")


def analyzed(t, ask):
    with t.case("EXPLAIN ANALYZE says what the steps did"):
        ask("CREATE TABLE ea (id INT PRIMARY KEY, k INT, KEY (k))")
        ask("CREATE TABLE eb (id INT PRIMARY KEY, a INT)")
        ask.cursor.executemany("INSERT INTO ea VALUES (%s, %s)", [(i, i % 10) for i in range(100)])
        ask.cursor.executemany("INSERT INTO eb VALUES (%s, %s)", [(i, i % 5) for i in range(50)])

        def steps(statement):
            """(depth, words, rows and loops) of each line."""
            text, = ask(f"EXPLAIN ANALYZE {statement}")
            form = r"( *)-> (.*?)(?:  (?:\(rows=[^)]*\) ?)?(?:\(actual time=(\S+)\.\.(\S+) rows=(\S+) loops=(\d+)\)|\(never executed\))?)?"
            lines = [re.fullmatch(form, line) for line in text[0].splitlines()]
            check(all(lines), f"{statement}: {text[0]}")
            check(all(float(m[3]) <= float(m[4]) for m in lines if m[3]), f"times of {statement}: {text[0]}")
            return [(len(m[1]) // 4, m[2], m[5] and (float(m[5]), int(m[6]))) for m in lines]

        check_equal(steps("SELECT * FROM ea WHERE id = 7"), [(0, "Single-row index lookup on ea using PRIMARY (id = 7)", (1, 1))], "a row by key")
        check_equal(steps("SELECT * FROM ea WHERE id = 700"), [(0, "Single-row index lookup on ea using PRIMARY (id = 700)", (0, 1))], "no row")
        check_equal(steps("SELECT id FROM ea WHERE k = 3 AND id > 50"),
                    [(0, "Filter: (ea.id > 50)", (5, 1)), (1, "Index lookup on ea using k (k = 3), with pushed condition", (5, 1))], "a filter")
        check_equal(steps("SELECT id FROM ea WHERE k = 3 AND id % 20 = 3"),
                    [(0, "Filter: ((ea.id % 20) = 3)", (5, 1)), (1, "Index lookup on ea using k (k = 3)", (10, 1))], "a filter that is not pushed")
        found = steps("SELECT * FROM eb JOIN ea ON ea.id = eb.a WHERE ea.k < 3 ORDER BY ea.k")
        check_equal(found[0][::2], (0, (30, 1)), "rows of a join")
        found = steps("SELECT * FROM eb JOIN ea ON ea.id = eb.a AND ea.k > eb.id WHERE eb.id < 4")
        check_equal([(words, counted) for _, words, counted in found],
                    [("Nested loop inner join", (0, 1)), ("Index range scan on eb using PRIMARY over (id < 4)", (4, 1)), ("Filter: (ea.k > eb.id)", (0, 4)),
                     ("Single-row index lookup on ea using PRIMARY (id = eb.a)", (1, 4))], "rows that are looked up by key")
        found = steps("SELECT k, (SELECT COUNT(*) FROM eb WHERE eb.a = ea.k) FROM ea WHERE id < 20")
        check_equal([counted for _, words, counted in found if words.startswith("Aggregate")], [(1, 10)], "a subquery runs once for each value")
        check_equal(steps("DELETE ea FROM ea JOIN eb ON eb.a = ea.id")[0][1], "Delete from ea (buffered)", "a joined change")
        check_equal(steps("INSERT INTO eb SELECT id + 100, k FROM ea WHERE id < 7")[1:][0][2], (7, 1), "what is inserted")
        check_equal(ask("SELECT (SELECT COUNT(*) FROM ea), (SELECT COUNT(*) FROM eb)"), ((100, 50),), "nothing was changed")
        refused(ask.cursor, "EXPLAIN ANALYZE SELECT * FROM ea FOR UPDATE", 1235)


def locks(t, connect):
    one, two = connect(), connect()
    a, b = one.cursor(), two.cursor()
    with t.case("a lock wait ends after innodb_lock_wait_timeout, NOWAIT at once, SKIP LOCKED passes by"):
        a.execute("BEGIN")
        a.execute("UPDATE t SET k = 5 WHERE id = 1")
        b.execute("SET innodb_lock_wait_timeout = 1")
        start = time.monotonic()
        refused(b, "UPDATE t SET k = 6 WHERE id = 1", 1205)
        check(0.8 < time.monotonic() - start < 5, f"waited {time.monotonic() - start:.2f} s")
        refused(b, "SELECT * FROM t WHERE id = 1 FOR UPDATE NOWAIT", 3572)
        b.execute("SELECT id FROM t WHERE id = 1 FOR UPDATE SKIP LOCKED")
        check_equal(b.fetchall(), (), "skipped")
        a.execute("ROLLBACK")
    with t.case("a row that goes into variables is locked where the query says so"):
        for query in ("SELECT id FROM t WHERE id = 1 INTO @a FOR UPDATE", "SELECT x.id INTO @a FROM t x JOIN t y ON y.id = x.id WHERE x.id = 1 FOR UPDATE"):
            a.execute("BEGIN")
            a.execute("SET @a = NULL")
            a.execute(query)
            refused(b, "SELECT * FROM t WHERE id = 1 FOR UPDATE NOWAIT", 3572)
            a.execute("SELECT @a")
            check_equal(a.fetchall(), ((1,),), query)
            a.execute("ROLLBACK")
    with t.case("of two that wait for each other one gets 1213"):
        a.execute("INSERT INTO t VALUES (2, 1, 2, 'a', 1, 1)")
        for cursor, row in ((a, 1), (b, 2)):
            cursor.execute("SET innodb_lock_wait_timeout = 20")
            cursor.execute("BEGIN")
            cursor.execute(f"UPDATE t SET k = 5 WHERE id = {row}")
        outcomes = []

        def cross(cursor, row):
            try:
                cursor.execute(f"UPDATE t SET k = 7 WHERE id = {row}")
                outcomes.append(0)
            except pymysql.MySQLError as error:
                outcomes.append(error.args[0])

        threads = [threading.Thread(target=cross, args=c) for c in ((a, 2), (b, 1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        check_equal(sorted(outcomes), [0, 1213], "outcomes")
        a.execute("ROLLBACK")
        b.execute("ROLLBACK")
    with t.case("a queue of jobs: SKIP LOCKED with LIMIT shares it out, and locks no more than asked"):
        a.execute("BEGIN")
        b.execute("BEGIN")
        taken = []
        for cursor in (a, b):
            cursor.execute("SELECT id FROM r WHERE k IS NOT NULL ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED")
            taken += cursor.fetchall()
        check_equal(len(set(taken)), 4, "jobs taken")
        b.execute("SELECT id FROM r WHERE id > %s AND k IS NOT NULL LIMIT 1 FOR UPDATE NOWAIT", (max(taken)[0],))
        check_equal(len(b.fetchall()), 1, "rows behind them are free")
        a.execute("ROLLBACK")
        b.execute("ROLLBACK")
    one.close()
    two.close()


def killed(ask, connect, statement):
    """The number of a statement that waits for a lock when it is killed."""
    number, seen = ask("SELECT CONNECTION_ID()")[0][0], []

    def run():
        try:
            ask(statement)
            seen.append(0)
        except pymysql.MySQLError as error:
            seen.append(error.args[0])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    other = Ask(connect())

    def kill():
        # It may not have begun yet: then the next one ends it.
        other(f"KILL QUERY {number}")
        return not thread.is_alive()

    wait_until(kill, 20, f"{statement} ends")
    other.cursor.connection.close()
    return seen[0]


def table_locks(t, connect):
    one, two = connect(), connect()
    a, b = Ask(one), Ask(two)
    with t.case("LOCK TABLES locks what it names until UNLOCK TABLES, and commits"):
        a("CREATE TABLE l (id INT PRIMARY KEY)")
        a("INSERT INTO l VALUES (1)")
        a("LOCK TABLES l AS x READ, t READ LOCAL")
        b("SET lock_wait_timeout = 1")
        refused(b.cursor, "INSERT INTO l VALUES (2)", 1205)
        check_equal(b("SELECT COUNT(*) FROM l"), ((1,),), "rows for others")
        check_equal(a("SELECT COUNT(*) FROM l AS x"), ((1,),), "rows under the lock")
        refused(a.cursor, "SELECT COUNT(*) FROM l", 1100)
        refused(a.cursor, "INSERT INTO t (id) VALUES (1)", 1099)
        a("UNLOCK TABLES")
        b("INSERT INTO l VALUES (2)")
        a("LOCK TABLES `l` WRITE")
        a("INSERT INTO l VALUES (3)")
        refused(b.cursor, "SELECT COUNT(*) FROM l", 1205)
        a("UNLOCK TABLES")
        check_equal(b("SELECT COUNT(*) FROM l"), ((3,),), "rows for others")
        a("BEGIN")
        a("INSERT INTO l VALUES (4)")
        a("UNLOCK TABLES")
        a("ROLLBACK")
        check_equal(a("SELECT COUNT(*) FROM l"), ((3,),), "UNLOCK TABLES without a lock ended a transaction")
        refused(a.cursor, "LOCK TABLES nowhere READ", 1146)
        for harmless in ("FLUSH TABLES", "FLUSH PRIVILEGES", "FLUSH LOGS", "FLUSH TABLES l"):
            a(harmless)
    with t.case("KILL QUERY and max_execution_time end a wait for a lock outside of a transaction"):
        b("BEGIN")
        b("UPDATE t SET k = k + 1 WHERE id = 1")
        for statement in ("UPDATE t SET k = 7 WHERE k > 0", "DELETE FROM t WHERE k > 0", "SELECT * FROM t WHERE id = 1 FOR UPDATE",
                          "UPDATE t SET k = 7 WHERE id = 1", "DELETE FROM t WHERE id = 1"):
            ended = killed(a, connect, statement)
            check_equal(ended, 1317, statement)
        start = time.monotonic()
        refused(a.cursor, "SELECT /*+ MAX_EXECUTION_TIME(100) */ * FROM t WHERE id = 1 FOR UPDATE", 3024)
        check(time.monotonic() - start < 10, "it waited on")
        b("ROLLBACK")
        check_equal(a("SELECT COUNT(*) FROM t WHERE k = 7"), ((0,),), "rows of stopped statements")
        a("UPDATE t SET k = k + 1 WHERE id = 1")
    with t.case("the hint MAX_EXECUTION_TIME ends a SELECT"):
        start = time.monotonic()
        refused(a.cursor, "SELECT /*+ MAX_EXECUTION_TIME(100) */ SLEEP(20)", 3024)
        check(time.monotonic() - start < 10, "it slept on")
        a("SELECT /*+ MAX_EXECUTION_TIME(0) */ SLEEP(0.1)")
    one.close()
    two.close()


def big(t, cluster, connect):
    ask = Ask(connect())
    pid = cluster.describe()["sql"][0]["pid"]
    ask("CREATE TABLE big (id INT PRIMARY KEY, k INT, c CHAR(80))")
    for start in range(0, BIG_ROWS, 1000):
        values = ",".join(f"({i},{i % 1000},'{i % 977:080}')" for i in range(start, start + 1000))
        ask(f"INSERT INTO big VALUES {values}")
    with t.case(f"{BIG_ROWS} rows are streamed, the SQL node holds a part of them"):
        before = rss_kib(pid)
        cursor = connect().cursor(pymysql.cursors.SSCursor)
        cursor.execute("SELECT id, k, c FROM big")
        count = total = most = 0
        for row in cursor:
            count += 1
            total += row[0]
            if count % 20_000 == 0:
                most = max(most, rss_kib(pid))
        check_equal((count, total), (BIG_ROWS, BIG_ROWS * (BIG_ROWS - 1) // 2), "rows and sum of keys")
        check(most - before < STREAM_KIB, f"the SQL node grew by {most - before} KiB")
    with t.case("large sorted, grouped and distinct results are whole"):
        rows = ask("SELECT id, c FROM big ORDER BY c DESC, id")
        check_equal(len(rows), BIG_ROWS, "rows")
        check(all(x[1] > y[1] or x[1] == y[1] and x[0] < y[0] for x, y in zip(rows, rows[1:])), "out of order")
        rows = ask("SELECT c, COUNT(*), MIN(id), GROUP_CONCAT(k) FROM big WHERE id < 50000 GROUP BY c ORDER BY 3")
        check_equal([r[2] for r in rows], list(range(977)), "groups")
        check_equal(sum(r[1] for r in rows), 50_000, "rows in groups")
        check_equal(len(ask("SELECT DISTINCT c FROM big ORDER BY c")), 977, "distinct")
    with t.case("a change of many rows is one transaction"):
        check_equal(ask.cursor.execute("UPDATE big SET k = k + 1 WHERE id < 20000"), 20_000, "updated")
        check_equal(ask.cursor.execute("DELETE FROM big WHERE id >= 50000 AND id < 55000"), 5_000, "deleted")


def variables(t, cluster, connect):
    """What `mysql --safe-updates` sets when it connects, and what SET GLOBAL says of later sessions."""
    host, port = cluster.sql
    command = ["mariadb", "--no-defaults", f"-h{host}", f"-P{port}", "-uroot", "--protocol=TCP", "--safe-updates", "--skip-column-names"]

    def careful(statement, *options, ok=True):
        return run([*command, *options, "-e", statement, "engine"], ok=ok)[1]

    with t.case("the stock client with --safe-updates"):
        check_equal(len(careful("SELECT id FROM big", "--select-limit=3").split()), 3, "rows of --select-limit=3")
        check_equal(len(careful("SELECT id FROM big LIMIT 5", "--select-limit=3").split()), 5, "rows with a LIMIT")
        check("1175" in careful("DELETE FROM t WHERE r = 1", ok=False), "a DELETE without a key was not refused")
        cross = "SELECT COUNT(*) FROM big a JOIN big b ON a.k < b.k"
        check("1104" in careful(cross, "--max-join-size=1000000", ok=False), "a cross join was not refused")
        check_equal(careful("SELECT COUNT(*) FROM big", "--max-join-size=1000").split()[0].isdigit(), True, "a count")
        check_equal(careful("SELECT a.id FROM big a JOIN big b ON a.id = b.id WHERE a.id = 7").split(), ["7"], "a join by key")
    with t.case("SET GLOBAL says what later sessions begin with"):
        names = "@@sql_mode, @@wait_timeout, @@time_zone, @@sql_select_limit, @@autocommit"
        before = Ask(connect())
        was = before(f"SELECT {names}")
        for assignment in ("sql_mode = ''", "wait_timeout = 777", "time_zone = '+03:00'", "sql_select_limit = 9", "autocommit = 1"):
            before(f"SET GLOBAL {assignment}")
        after = Ask(connect())
        check_equal(after(f"SELECT {names}"), (("", 777, "+03:00", 9, 1),), "a session that began later")
        check_equal(before(f"SELECT {names}"), was, "a session that was there")
        after("SET SESSION wait_timeout = 5")
        after("SET SESSION wait_timeout = DEFAULT")
        check_equal(after("SELECT @@wait_timeout"), ((777,),), "DEFAULT")
        for name in ("sql_mode", "wait_timeout", "time_zone", "sql_select_limit", "autocommit"):
            before(f"SET GLOBAL {name} = DEFAULT")
        check_equal(Ask(connect())(f"SELECT {names}"), was, "a session after DEFAULT")


class Ask:
    """Runs a statement and returns its rows."""

    def __init__(self, connection):
        self.cursor = connection.cursor()

    def __call__(self, statement):
        self.cursor.execute(statement)
        return self.cursor.fetchall()


def main(t):
    with Cluster(t) as cluster:
        host, port = cluster.sql
        pymysql.connect(host=host, port=port, user="root").cursor().execute("CREATE DATABASE engine")

        def connect():
            return pymysql.connect(host=host, port=port, user="root", database="engine", autocommit=True)

        ask = Ask(connect())
        ask("CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, u INT UNIQUE, s VARCHAR(5), n TINYINT NOT NULL DEFAULT 3, "
            "r INT NOT NULL, KEY (k))")
        ask("INSERT INTO t VALUES (1, 1, 1, 'a', 1, 1)")
        for statement, number in ERRORS:
            with t.case(f"error {number}: {statement}"):
                refused(ask.cursor, statement, number)
        ranges(t, ask)
        analyzed(t, ask)
        locks(t, connect)
        table_locks(t, connect)
        with t.case("SHOW INDEX has numbers where programs count on them"):
            ask.cursor.execute("SHOW INDEX FROM t")
            numbers = {(type(row[1]), type(row[3])) for row in ask.cursor.fetchall()}
            check_equal(numbers, {(int, int)}, "types of Non_unique and Seq_in_index")
        with t.case("what tools send when they connect is answered"):
            cursor = connect().cursor()
            for line in TOOLS.read_text().splitlines():
                if line and not line.startswith("--"):
                    try:
                        cursor.execute(line)
                    except pymysql.MySQLError as error:
                        check(False, f"{line}: {error}")
        big(t, cluster, connect)
        variables(t, cluster, connect)


if __name__ == "__main__":
    scenario_main(main)
