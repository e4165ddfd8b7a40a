"""CHECK constraints and generated columns that come to a table while others write through two SQL nodes, and a data node dies meanwhile: every row has its value, none violates."""

import threading

import pymysql

from lib.asking import ask, refused
from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (180, 400)
SIDE_BY_SIDE = True
WRITERS = 4
ROWS = 300
CHANGES = 20 if FULL else 6
# What may be told of a statement that another change, or a node that dies, came in between of.
PASSING = (1205, 1213, 1412, 1297, 1180, 2006, 2013)


def connect(node):
    return pymysql.connect(host=node["host"], port=node["port"], user="root", autocommit=True, database="shop")


class Writer(threading.Thread):
    """Gives rows other values, also some that a constraint refuses."""

    def __init__(self, node, number, stop):
        super().__init__(daemon=True)
        self.node, self.number, self.stop = node, number, stop
        self.done, self.violations, self.error = 0, 0, None

    def run(self):
        try:
            connection = connect(self.node)
            turn = self.number
            while not self.stop.is_set():
                turn += 7
                key, value = turn % ROWS, turn % 1000 - 20
                try:
                    statements = (f"UPDATE t SET a = {value} WHERE id = {key}", f"REPLACE INTO t (id, a) VALUES ({key}, {value})",
                                  f"UPDATE t SET a = a + 1 WHERE id = {key}", f"INSERT INTO t (id, a) VALUES ({key}, 1) ON DUPLICATE KEY UPDATE a = {value}")
                    ask(connection, statements[turn % 4])
                    self.done += 1
                except pymysql.MySQLError as error:
                    if error.args[0] == 3819:
                        self.violations += 1
                    elif error.args[0] not in PASSING:
                        raise
                    else:
                        connection.close()
                        connection = connect(self.node)
        except Exception as error:  # noqa: BLE001: told by the test's own thread
            self.error = error


def patiently(nodes, statement):
    """Until nothing comes in between."""
    while True:
        connection = connect(nodes[0])
        try:
            return ask(connection, statement)
        except pymysql.MySQLError as error:
            if error.args[0] not in PASSING:
                raise
        finally:
            connection.close()


def under_load(t, nodes, name, amid=None):
    stop = threading.Event()
    writers = [Writer(nodes[i % len(nodes)], i, stop) for i in range(WRITERS)]
    for writer in writers:
        writer.start()
    for turn in range(CHANGES):
        before = sum(writer.done for writer in writers)
        wait_until(lambda: sum(w.done for w in writers) > before + 20 or any(w.error for w in writers), 60, "writers go on")
        if amid is not None and turn == CHANGES // 2:
            amid()
        patiently(nodes, f"ALTER TABLE t ADD {name}{turn} INT AS (a * 2 + {turn}) STORED")
        patiently(nodes, f"ALTER TABLE t ADD KEY k{name}{turn} ({name}{turn})")
        patiently(nodes, "UPDATE t SET a = 1 WHERE a < 0")
        try:
            patiently(nodes, f"ALTER TABLE t ADD CONSTRAINT c{name}{turn} CHECK (a >= 0)")
            check_equal(patiently(nodes, "SELECT COUNT(*) FROM t WHERE a < 0"), ((0,),), "rows that violate")
            patiently(nodes, f"ALTER TABLE t DROP CHECK c{name}{turn}")
        except pymysql.MySQLError as error:
            check_equal(error.args[0], 3819, "a constraint for which a row was too quick")
        rows = patiently(nodes, f"SELECT COUNT(*) FROM t WHERE {name}{turn} IS NULL OR {name}{turn} <> a * 2 + {turn}")
        check_equal(rows, ((0,),), "rows without their value")
    stop.set()
    for writer in writers:
        writer.join(60)
        check(not writer.is_alive() and writer.error is None, f"writer {writer.number}: {writer.error!r}")
    for turn in range(CHANGES):
        wrong = patiently(nodes, f"SELECT COUNT(*) FROM t WHERE {name}{turn} <> a * 2 + {turn}")
        by_index = patiently(nodes, f"SELECT COUNT(*) FROM t x JOIN t y ON x.{name}{turn} = y.{name}{turn} AND x.id = y.id")
        check_equal((wrong, by_index), (((0,),), ((patiently(nodes, "SELECT COUNT(*) FROM t")[0][0],),)), f"values of {name}{turn}")
        patiently(nodes, f"ALTER TABLE t DROP {name}{turn}")
    t.say(f"{sum(w.done for w in writers)} changes, {sum(w.violations for w in writers)} refused by a constraint")


def body(t):
    with Cluster(t, sql_nodes=2) as cluster:
        nodes = cluster.describe()["sql"]
        whole = pymysql.connect(host=nodes[0]["host"], port=nodes[0]["port"], user="root", autocommit=True)
        ask(whole, "CREATE DATABASE shop")
        first, second = (connect(node) for node in nodes)
        with t.case("what one SQL node defines the other holds"):
            ask(first, "CREATE TABLE s (id INT PRIMARY KEY, a INT CHECK (a > 0), b INT AS (a + 1))")
            refused(second, "INSERT INTO s (id, a) VALUES (1, 0)", 3819)
            ask(second, "INSERT INTO s (id, a) VALUES (1, 1)")
            ask(first, "ALTER TABLE s ADD CONSTRAINT few CHECK (b < 10)")
            refused(second, "UPDATE s SET a = 9 WHERE id = 1", 3819)
            ask(first, "ALTER TABLE s ALTER CHECK few NOT ENFORCED")
            ask(second, "UPDATE s SET a = 9 WHERE id = 1")
            refused(first, "ALTER TABLE s ALTER CHECK few ENFORCED", 3819)
            check_equal(ask(second, "SELECT a, b FROM s"), ((9, 10),), "the row")
        with t.case("a constraint waits for a transaction that is open, and sees what it leaves"):
            ask(second, "BEGIN")
            ask(second, "UPDATE s SET a = 77 WHERE id = 1")
            ask(second, "SAVEPOINT sent")  # a change that waited at its SQL node would be refused with 1412
            done = []
            waiting = threading.Thread(target=lambda: done.append(try_check(nodes[0])), daemon=True)
            waiting.start()
            wait_until(lambda: "many" in ask(first, "SHOW CREATE TABLE s")[0][1], 30, "the constraint is there")
            check(not done, "it did not wait")
            ask(second, "COMMIT")
            waiting.join(60)
            check_equal(done, [3819], "what became of it")
            check("many" not in ask(first, "SHOW CREATE TABLE s")[0][1], "it stayed")
        values = ", ".join(f"({n}, {n})" for n in range(ROWS))
        ask(first, "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")
        ask(first, f"INSERT INTO t VALUES {values}")
        with t.case("columns and constraints come under load"):
            under_load(t, nodes, "x")
        with t.case("a data node dies while they come"):
            under_load(t, nodes, "y", amid=lambda: cluster.kill(2))


def try_check(node):
    connection = connect(node)
    try:
        ask(connection, "ALTER TABLE s ADD CONSTRAINT many CHECK (a < 50)")
        return 0
    except pymysql.MySQLError as error:
        return error.args[0]


if __name__ == "__main__":
    scenario_main(body)
