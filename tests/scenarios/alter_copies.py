"""ALTER TABLE that copies a table while others write it through two SQL nodes, and read it: no row that was acknowledged is lost, none is there twice or half, foreign keys hold, and nobody waits for long. A data node dies
meanwhile, and again and again the SQL node that alters: the table is as it was or as it should be, and may be written."""

import random
import threading
import time

import pymysql

from lib.asking import ask
from lib.cluster import Cluster
from lib.harness import BINARY, FULL, check, check_equal, run, scenario_main, wait_until

LIMIT_SECONDS = (300, 900)
WRITERS = 6
# Rows that nobody changes, half of them in front of the others and half behind: every look at the table sees all of them.
STILL = 20_000
BEHIND = 10 ** 9
CHANGES = 24 if FULL else 8
DEATHS = 40 if FULL else 8
NODES_DIE = 6 if FULL else 2
# What may be told of a statement that the copy, or a node that dies, came in between of, and is not done.
PASSING = (1205, 1213, 1412)
# And of one of which nobody knows.
UNKNOWN = (1180, 1297, 1105, 2003, 2006, 2013, 0)


def connect(node, database="shop"):
    return pymysql.connect(host=node["host"], port=node["port"], user="root", autocommit=True, database=database)


class Writer(threading.Thread):
    """Adds, changes and drops rows of its own, and children of them, and remembers what was acknowledged: the value of each row, or several that it may have."""

    def __init__(self, node, number, stop):
        super().__init__(daemon=True)
        self.node, self.number, self.stop = node, number, stop
        self.rows, self.done, self.passed, self.error = {}, 0, 0, None
        self.next, self.random = 1, random.Random(number)

    def run(self):
        try:
            connection = connect(self.node)
            while not self.stop.is_set():
                before = dict(self.rows)
                try:
                    self.turn(connection)
                    self.done += 1
                except pymysql.MySQLError as error:
                    if error.args[0] in PASSING:
                        self.passed += 1
                        self.rows = before
                        connection.rollback()
                    elif error.args[0] in UNKNOWN:
                        for key in self.rows.keys() | before.keys():
                            now, old = self.rows.get(key, {None}), before.get(key, {None})
                            if now != old:
                                self.rows[key] = now | old
                        connection.close()
                        connection = connect(self.node)
                    else:
                        raise
        except Exception as error:  # noqa: BLE001: told by the test's own thread
            self.error = error

    def turn(self, connection):
        kind = self.random.randrange(5)
        # Of others it is not known what a change would find.
        known = [key for key, values in self.rows.items() if len(values) == 1 and None not in values]
        if kind == 0 and known:
            key = self.random.choice(known)
            self.rows[key] = {value + 1 for value in self.rows[key]}
            ask(connection, f"UPDATE t SET v = v + 1 WHERE id = {key}")
        elif kind == 1 and known:
            key = self.random.choice(known)
            self.rows[key] = {None}
            ask(connection, f"DELETE FROM t WHERE id = {key}")  # with its children
        elif kind == 2:
            keys = [self.new() for _ in range(5)]
            ask(connection, "BEGIN")
            for key in keys:
                self.rows[key] = {key}
                ask(connection, f"INSERT INTO t (id, v, w) VALUES ({key}, {key}, '{key}')")
            ask(connection, f"UPDATE t SET v = v + 1 WHERE id IN ({keys[0]}, {keys[1]})")
            self.rows[keys[0]], self.rows[keys[1]] = {keys[0] + 1}, {keys[1] + 1}
            ask(connection, "COMMIT")
        elif kind == 3 and known:
            key = self.random.choice(known)
            ask(connection, f"INSERT INTO child (of, x) VALUES ({key}, {self.number})")
        else:
            key = self.new()
            self.rows[key] = {key}
            ask(connection, f"INSERT INTO t (id, v, w) VALUES ({key}, {key}, '{key}')")

    def new(self):
        self.next += 1
        return self.next * 100 + self.number


class Reader(threading.Thread):
    """Counts the rows that nobody changes, each time for itself and within transactions that see one moment."""

    def __init__(self, node, stop):
        super().__init__(daemon=True)
        self.node, self.stop, self.looks, self.refused, self.error = node, stop, 0, 0, None

    def run(self):
        try:
            connection = connect(self.node)
            while not self.stop.is_set():
                try:
                    for begin in ("SET @a = 1", "START TRANSACTION WITH CONSISTENT SNAPSHOT"):
                        ask(connection, begin)
                        for _ in range(3):
                            check_equal(ask(connection, f"SELECT COUNT(*), SUM(v) FROM t WHERE id < 0 OR id > {BEHIND}"), ((STILL, STILL * 7),), f"rows that nobody changes, after {begin}")
                            self.looks += 1
                            time.sleep(0.02)
                    ask(connection, "COMMIT")
                except pymysql.MySQLError as error:
                    if error.args[0] not in (*PASSING, *UNKNOWN):
                        raise
                    self.refused += 1
                    connection.close()
                    connection = connect(self.node)
        except Exception as error:  # noqa: BLE001: told by the test's own thread
            self.error = error


class Load:
    def __init__(self, t, nodes):
        self.t, self.nodes, self.stop = t, nodes, threading.Event()
        self.writers = [Writer(nodes[i % len(nodes)], i, self.stop) for i in range(WRITERS)]
        self.readers = [Reader(node, self.stop) for node in nodes]

    def __enter__(self):
        first = connect(self.nodes[0])
        ask(first, "DROP TABLE IF EXISTS child, t")
        ask(first, "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT, w VARCHAR(20), UNIQUE KEY (w), KEY (v))")
        ask(first, "CREATE TABLE child (n INT AUTO_INCREMENT PRIMARY KEY, of INT NOT NULL, x INT, FOREIGN KEY (of) REFERENCES t (id) ON DELETE CASCADE)")
        for begin in range(0, STILL, 4000):
            ask(first, "INSERT INTO t VALUES " + ", ".join(f"({BEHIND + n if n % 2 else -n - 1}, 7, 'still {n}')" for n in range(begin, begin + 4000)))
        for thread in (*self.writers, *self.readers):
            thread.start()
        return self

    def go_on(self):
        """Until each has written and looked again."""
        before = [(writer, writer.done) for writer in self.writers]

        def went_on():
            for thread in (*self.writers, *self.readers):
                check(thread.error is None, f"{thread.error!r}")
            return all(writer.done > done + 3 for writer, done in before)

        wait_until(went_on, 90, "writers go on")

    def __exit__(self, kind, value, trace):
        self.stop.set()
        for thread in (*self.writers, *self.readers):
            thread.join(90)
        if kind is not None:
            return
        for thread in (*self.writers, *self.readers):
            check(not thread.is_alive() and thread.error is None, f"{thread}: {thread.error!r}")
        self.count()

    def count(self):
        first = connect(self.nodes[1])
        found = ask(first, f"SELECT id, v, w FROM t WHERE id BETWEEN 1 AND {BEHIND}")
        check_equal(len(found), len({row[0] for row in found}), "rows that are there once")
        found = {row[0]: row[1:] for row in found}
        expected = {}
        for writer in self.writers:
            expected |= writer.rows
        for key, values in expected.items():
            value = found.get(key, (None, None))[0]
            check(value in values, f"row {key} is {value!r}, acknowledged was {values}")
        check_equal(found.keys() - expected.keys(), set(), "rows that nobody has added")
        check(all(w == str(key) for key, (_, w) in found.items()), "texts of the rows")
        check_equal(ask(first, "SELECT COUNT(*) FROM child c LEFT JOIN t ON t.id = c.of WHERE t.id IS NULL"), ((0,),), "children of nobody")
        for by in ("FORCE INDEX (v)", "FORCE INDEX (w)"):
            column = by[-2]
            check_equal(ask(first, f"SELECT COUNT(*) FROM t {by} WHERE {column} >= '0'"), ask(first, f"SELECT COUNT(*) FROM t IGNORE INDEX (v, w) WHERE {column} >= '0'"), f"rows by {by}")
        unsure = sum(len(values) > 1 for values in expected.values())
        self.t.say(f"{sum(w.done for w in self.writers)} changes, {sum(w.passed for w in self.writers)} refused in passing, {unsure} of which nobody knows, {len(found)} rows, "
                   f"{sum(r.looks for r in self.readers)} looks, {sum(r.refused for r in self.readers)} refused")


def alter_of(turn):
    return ("ALTER TABLE t MODIFY v BIGINT NOT NULL", "ALTER TABLE t MODIFY v INT, MODIFY w VARCHAR(40) NOT NULL, COMMENT 'turn'",
            "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id), ADD UNIQUE KEY other (w, v)",
            "ALTER TABLE t MODIFY w VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, DROP INDEX other",
            # A copy cannot follow where rows are counted.
            "ALTER TABLE t ADD n BIGINT NOT NULL AUTO_INCREMENT, ADD UNIQUE KEY counted (n)", "ALTER TABLE t DROP COLUMN n, MODIFY v BIGINT")[turn % 6]


def patiently(node, statement):
    """Until nothing comes in between; a statement that was done has its answer lost at worst."""
    while True:
        try:
            connection = connect(node)
            try:
                return ask(connection, statement)
            finally:
                connection.close()
        except pymysql.MySQLError as error:
            if error.args[0] not in (*PASSING, *UNKNOWN):
                raise


def error_by(connection, statement):
    try:
        ask(connection, statement)
        return None
    except pymysql.MySQLError as error:
        return error.args[0]


def error_of(node, statement):
    connection = connect(node)
    try:
        return error_by(connection, statement)
    finally:
        connection.close()


def copies(cluster):
    """The copies in the dictionary as data nodes keep it on disk."""
    files = [cluster.home / "data" / "files" / f"data-{node}" / "dictionary" for node in cluster.data_ids()]
    texts = [run([BINARY, "inspect", file], ok=False)[1] for file in files]
    return [line for text in texts for line in text.splitlines() if "#alter#" in line]


def under_load(t, nodes, changes, amid=None):
    with Load(t, nodes) as load:
        for turn in range(changes):
            load.go_on()
            if amid is not None:
                # The copy is not finished before this transaction ends, however quick the machine is.
                holder = connect(nodes[1])
                ask(holder, "BEGIN")
                ask(holder, f"INSERT INTO t (id, v, w) VALUES ({-10 ** 6 - turn}, 7, 'held {turn}')")
                altering = threading.Thread(target=patiently, args=(nodes[0], alter_of(turn)), daemon=True)
                altering.start()
                amid(turn, altering, lambda: quietly(holder, "ROLLBACK"))
                altering.join(120)
                check(not altering.is_alive(), "the statement ends")
            else:
                patiently(nodes[turn % 2], alter_of(turn))
        load.go_on()


def altering_node_dies(t, cluster, nodes):
    draws, outcomes = random.Random(5), {"as it was": 0, "as it should be": 0}
    with Load(t, nodes) as load:
        for turn in range(DEATHS):
            load.go_on()
            shown = ask(connect(nodes[0]), "SHOW CREATE TABLE t")[0][1]
            process, node = cluster.more_sql(f"more{turn}")
            statement = f"ALTER TABLE t COMMENT 'death {turn}', MODIFY v {('INT', 'BIGINT')[turn % 2]} NULL"
            connection = connect(node)
            altering = threading.Thread(target=lambda: quietly(connection, statement), daemon=True)
            altering.start()
            if turn % 3 == 0:
                wait_until(lambda: copies(cluster) or not altering.is_alive(), 60, "the copy is there")
            else:
                time.sleep(draws.random() * 1.5)
            process.kill()
            process.wait(10)
            load.go_on()  # the table may be written again
            now = ask(connect(nodes[0]), "SHOW CREATE TABLE t")[0][1]
            is_new = f"death {turn}" in now
            check(is_new or now == shown, f"the table is neither as it was nor as it should be: {now}")
            outcomes["as it should be" if is_new else "as it was"] += 1
        wait_until(lambda: not copies(cluster), 30, "no copy is left")
    t.say(str(outcomes))


def quietly(connection, statement):
    try:
        ask(connection, statement)
    except pymysql.MySQLError:
        pass


def body(t):
    with Cluster(t, sql_nodes=2, dir=t.directory / "c" / "data") as cluster:
        nodes = cluster.describe()["sql"]
        ask(connect(nodes[0], None), "CREATE DATABASE shop")
        with t.case("a table is copied under load"):
            under_load(t, nodes, CHANGES)
        with t.case("a transaction that has rows of the table is waited for, and goes on"):
            first, second = connect(nodes[0]), connect(nodes[1])
            ask(first, "CREATE TABLE s (id INT PRIMARY KEY, a INT)")
            ask(first, "INSERT INTO s VALUES (1, 1), (2, 2)")
            ask(second, "BEGIN")
            ask(second, "INSERT INTO s VALUES (3, 3)")
            altering = threading.Thread(target=patiently, args=(nodes[0], "ALTER TABLE s MODIFY a VARCHAR(5) NOT NULL"), daemon=True)
            altering.start()
            wait_until(lambda: copies(cluster), 30, "the copy is there")
            ask(second, "COMMIT")
            altering.join(60)
            check_equal(ask(second, "SELECT * FROM s ORDER BY id"), ((1, "1"), (2, "2"), (3, "3")), "rows")
        with t.case("a transaction that stays open holds nobody up but the statement"):
            ask(second, "BEGIN")
            ask(second, "UPDATE s SET a = '9' WHERE id = 3")
            altering = threading.Thread(target=patiently, args=(nodes[0], "ALTER TABLE s MODIFY a VARCHAR(9) NOT NULL, ADD UNIQUE KEY a (a)"), daemon=True)
            altering.start()
            wait_until(lambda: copies(cluster), 30, "the copy is there")
            third, longest = connect(nodes[1]), 0
            for turn in range(300):
                begin = time.monotonic()
                ask(third, f"INSERT INTO s VALUES ({10 + turn}, 'n{turn}')")
                ask(third, f"UPDATE s SET a = 'm{turn}' WHERE id = {10 + turn}")
                longest = max(longest, time.monotonic() - begin)
            check(altering.is_alive(), "the statement waits for the transaction")
            check(longest < 10, f"a writer has waited {longest:.1f} s")
            t.say(f"longest pair of writes beside it {longest * 1000:.0f} ms")
            ask(second, "COMMIT")
            altering.join(60)
            check(not altering.is_alive(), "the statement ends")
            expected = ((1, "1"), (2, "2"), (3, "9"), *((10 + turn, f"m{turn}") for turn in range(300)))
            check_equal(ask(second, "SELECT * FROM s ORDER BY id"), expected, "rows")
            check_equal(ask(second, "SELECT COUNT(*) FROM s FORCE INDEX (a) WHERE a >= ''"), ((303,),), "rows by the new key")
        with t.case("another change of the table comes in between, and both are there"):
            ask(second, "BEGIN")
            ask(second, "DELETE FROM s WHERE id = 1")
            altering = threading.Thread(target=patiently, args=(nodes[0], "ALTER TABLE s MODIFY a VARCHAR(7) NOT NULL"), daemon=True)
            altering.start()
            wait_until(lambda: copies(cluster), 30, "the copy is there")
            patiently(nodes[1], "ALTER TABLE s ADD COLUMN more INT DEFAULT 5")
            ask(second, "COMMIT")
            altering.join(60)
            check(not altering.is_alive(), "the statement ends")
            definition = ask(first, "SHOW CREATE TABLE s")[0][1]
            check("`more` int" in definition and "`a` varchar(7)" in definition, definition)
            check_equal(ask(first, "SELECT COUNT(*), SUM(more) FROM s"), ((302, 302 * 5),), "rows")
        with t.case("how far it is can be seen, it goes as slowly as it is told to, and it can be killed"):
            ask(first, "CREATE TABLE p (id INT PRIMARY KEY, a VARCHAR(30), KEY (a))")
            ask(first, "INSERT INTO p WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT /*+ SET_VAR(cte_max_recursion_depth = 5000) */ i, i FROM n")
            statements = {
                "ALTER TABLE p MODIFY a VARCHAR(9)": "copying rows: ",
                "ALTER TABLE p ADD n INT AUTO_INCREMENT UNIQUE": "copying rows, nobody writes: ",
                "ALTER TABLE p ADD UNIQUE KEY (id, a)": "filling the index: ",
                "ALTER TABLE p ADD CONSTRAINT CHECK (id < 10000)": "going through rows: ",
                "ALTER TABLE p ADD FOREIGN KEY (a) REFERENCES names (a)": "looking at rows: ",
            }
            ask(first, "CREATE TABLE names (a VARCHAR(30) PRIMARY KEY)")
            ask(first, "INSERT INTO names SELECT a FROM p")
            for statement, state in statements.items():
                slow, told = connect(nodes[0]), []
                ask(slow, "SET apus_alter_rate = 4000")
                altering = threading.Thread(target=lambda: told.append(error_by(slow, statement)), daemon=True)
                altering.start()
                shown = lambda: [row[6] for row in ask(first, "SHOW PROCESSLIST") if row[0] == slow.thread_id()]
                wait_until(lambda: any(text.startswith(state) and " of about 5000, " in text and text.endswith(" s left") for text in shown()), 30, f"{statement} tells how far it is")
                ask(first, f"KILL QUERY {slow.thread_id()}")
                altering.join(30)
                check_equal(told, [1317], statement)
            wait_until(lambda: not copies(cluster), 30, "no copy is left")
            check_equal(ask(first, "SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_NAME = 'p'"), ((2,),), "indexes")
            begin = time.monotonic()
            ask(slow, "ALTER TABLE p MODIFY a VARCHAR(9)")
            check(time.monotonic() - begin > 1, "5,000 rows at 4,000 rows per second")
            check_equal(ask(first, "SELECT COUNT(*), SUM(a) FROM p"), ((5000, 5000 * 5001 / 2),), "rows")
        with t.case("a row comes meanwhile that the new definition refuses"):
            for row, errno in (("(1, 'm7', 5)", 1062), ("(1, 'longer than that', 5)", 1265)):
                ask(first, "DROP TABLE IF EXISTS r")
                ask(first, "CREATE TABLE r (id INT PRIMARY KEY, a VARCHAR(30), more INT)")
                ask(first, "INSERT INTO r SELECT id, a, more FROM s")
                ask(second, "BEGIN")
                ask(second, f"INSERT INTO r VALUES {row}")
                told = []
                altering = threading.Thread(target=lambda: told.append(error_of(nodes[0], "ALTER TABLE r MODIFY a VARCHAR(12), ADD UNIQUE KEY a (a)")), daemon=True)
                altering.start()
                wait_until(lambda: copies(cluster), 30, "the copy is there")
                ask(second, "COMMIT")
                altering.join(60)
                check_equal(told, [errno], f"the statement, after {row}")
                check_equal(ask(second, "SELECT COUNT(*) FROM r"), ((303,),), "rows")
                ask(second, "UPDATE r SET a = NULL WHERE id = 1")
        with t.case("a snapshot from before is refused, and never half"):
            ask(second, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            ask(first, "ALTER TABLE s MODIFY a VARCHAR(5)")
            try:
                check(False, f"rows of another table: {ask(second, 'SELECT * FROM s')}")
            except pymysql.MySQLError as error:
                check_equal(error.args[0], 1412, "the snapshot")
            ask(second, "ROLLBACK")
        with t.case("a data node dies while a table is copied"):
            def amid(turn, altering, let_go):
                wait_until(lambda: copies(cluster) or not altering.is_alive(), 60, "the copy is there")
                check(altering.is_alive(), "the statement waits for the transaction")
                node = 2 - turn % 2
                if turn % 2:
                    let_go()
                    time.sleep(turn // 2 * 0.05)
                cluster.kill(node)
                let_go()
                cluster.wait_down(node)
                cluster.restart(node)
                cluster.wait_up(node)

            under_load(t, nodes, NODES_DIE, amid)
        with t.case("the SQL node that alters dies, again and again"):
            altering_node_dies(t, cluster, nodes)


if __name__ == "__main__":
    scenario_main(body)
