"""ALTER TABLE of columns through the stock client and a second SQL node: rows of several forms, refusals, statements and transactions that go on while columns
come and go, the death of a data node meanwhile, a start from the disks, and what mysqldump makes of it."""

import threading

import pymysql

from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, run, scenario_main, wait_until
from lib.mariadb import batch

LIMIT_SECONDS = (180, 400)
SIDE_BY_SIDE = True
WRITERS = 4
ROWS = 400
# Changes of the columns while others write.
CHANGES = 60 if FULL else 15


def connect(node, **options):
    return pymysql.connect(host=node["host"], port=node["port"], user="root", autocommit=True, **options)


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def forms(t, first, second):
    with t.case("rows of every form have the columns of today, at both SQL nodes"):
        ask(first, "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(10), b INT, KEY (b))")
        ask(second, "INSERT INTO shop.t (a, b) VALUES ('one', 1)")
        ask(first, "ALTER TABLE shop.t ADD COLUMN c INT NOT NULL DEFAULT 7 FIRST")
        ask(second, "INSERT INTO shop.t (c, a, b) VALUES (8, 'two', 2)")
        ask(first, "ALTER TABLE shop.t DROP COLUMN a, ADD d DATETIME DEFAULT '2024-01-02 03:04:05' AFTER id, RENAME COLUMN b TO e")
        ask(second, "INSERT INTO shop.t (c, d, e) VALUES (9, NULL, 3)")
        rows = ask(first, "SELECT c, id, CAST(d AS CHAR), e FROM shop.t ORDER BY id")
        moment = "2024-01-02 03:04:05"
        check_equal(rows, ((7, 1, moment, 1), (8, 2, moment, 2), (9, 3, None, 3)), "rows of three forms")
        check_equal(ask(second, "SELECT id FROM shop.t WHERE e = 2"), ((2,),), "through the index")
        ask(second, "UPDATE shop.t SET c = c + 10 WHERE e < 3")
        ask(first, "ALTER TABLE shop.t ADD a INT, ALTER c SET DEFAULT 5, MODIFY e INT AFTER c")
        ask(second, "INSERT INTO shop.t (a) VALUES (4)")
        check_equal(ask(first, "SELECT c, e, id, a FROM shop.t ORDER BY id"),
                    ((17, 1, 1, None), (18, 2, 2, None), (9, 3, 3, None), (5, None, 4, 4)), "a column that comes back is another one")


def refusals(t, first):
    with t.case("what cannot be is refused as MySQL refuses it, and changes nothing"):
        before = ask(first, "SHOW CREATE TABLE shop.t")
        for error, change in [(1060, "ADD id INT"), (1091, "DROP nope"), (1054, "MODIFY nope INT"), (1054, "RENAME COLUMN nope TO x"),
                              (1060, "RENAME COLUMN a TO c"), (1054, "ADD z INT AFTER nope"), (1067, "ADD z INT DEFAULT 'x'"),
                              (1846, "MODIFY a BIGINT, ALGORITHM=INPLACE"), (1068, "ADD PRIMARY KEY (a)")]:
            try:
                ask(first, f"ALTER TABLE shop.t {change}")
                check(False, f"{change} is done")
            except pymysql.MySQLError as refused:
                check_equal(refused.args[0], error, change)
        try:
            ask(first, "ALTER TABLE shop.nope ADD z INT")
            check(False, "a table that is not there is changed")
        except pymysql.MySQLError as refused:
            check_equal(refused.args[0], 1146, "a table that is not there")
        check_equal(ask(first, "SHOW CREATE TABLE shop.t"), before, "the table")


class Writer(threading.Thread):
    """Changes rows of its own, in transactions of several statements; what each must be in the end is in `rows`."""

    def __init__(self, node, number, stop):
        super().__init__(daemon=True)
        self.node, self.number, self.stop = node, number, stop
        self.rows, self.done, self.retried, self.error = {}, 0, 0, None

    def run(self):
        try:
            connection = connect(self.node)
            turn = 0
            while not self.stop.is_set():
                turn += 1
                key, value = self.number * ROWS + turn % ROWS, turn
                try:
                    ask(connection, "BEGIN")
                    ask(connection, f"DELETE FROM shop.w WHERE id = {key}")
                    ask(connection, f"INSERT INTO shop.w (id, v) VALUES ({key}, {value})")
                    ask(connection, f"UPDATE shop.w SET v = v + 1 WHERE id = {key}")
                    ask(connection, "COMMIT")
                    self.rows[key] = value + 1
                    self.done += 1
                except pymysql.MySQLError as error:
                    if error.args[0] not in (1205, 1213, 1412, 2013, 2006):
                        raise
                    self.retried += 1
                    self.rows[key] = None  # who knows
                    connection.close()
                    connection = connect(self.node)
        except Exception as error:  # noqa: BLE001: told by the test's own thread
            self.error = error


def under_load(t, cluster, nodes, name, amid=None):
    stop = threading.Event()
    writers = [Writer(nodes[i % len(nodes)], i, stop) for i in range(WRITERS)]
    first = connect(nodes[0])
    for writer in writers:
        writer.start()
    for turn in range(CHANGES):
        before = sum(writer.done for writer in writers)
        wait_until(lambda: sum(w.done for w in writers) > before + 5 or any(w.error for w in writers), 60, "writers go on")
        if amid is not None and turn == CHANGES // 3:
            amid()
        ask(first, f"ALTER TABLE shop.w ADD {name}{turn} INT NOT NULL DEFAULT {turn} " + ("FIRST" if turn % 2 else "AFTER id"))
        if turn > 2:
            ask(first, f"ALTER TABLE shop.w DROP {name}{turn - 3}")
    stop.set()
    for writer in writers:
        writer.join(60)
        check(not writer.is_alive() and writer.error is None, f"writer {writer.number}: {writer.error!r}")
    found = dict(ask(first, "SELECT id, v FROM shop.w"))
    for writer in writers:
        for key, value in writer.rows.items():
            check(value is None or found.get(key) == value, f"row {key} is {found.get(key)}, not {value}")
    check_equal(ask(first, f"SELECT COUNT(*) FROM shop.w WHERE {name}{CHANGES - 1} <> {CHANGES - 1}"), ((0,),), "rows without the default")
    t.say(f"{sum(w.done for w in writers)} transactions, {sum(w.retried for w in writers)} to be repeated, over {CHANGES} columns that came")


def dumped(t, cluster, first):
    with t.case("mysqldump and its own text again are the same table"):
        host, port = cluster.sql
        command = ["mariadb-dump", "--no-defaults", "-uroot", "--protocol=TCP", f"-h{host}", f"-P{port}", "shop", "t"]
        _, text = run(command)
        ask(first, "CREATE DATABASE again")
        code, said = batch(text, database="again", host=host, port=port)
        check(code == 0 and "ERROR" not in said, f"loading ended with {code}: {said}")
        check_equal(ask(first, "SELECT * FROM again.t ORDER BY id"), ask(first, "SELECT * FROM shop.t ORDER BY id"), "rows")


def body(t):
    home = t.directory / "data"
    with Cluster(t, sql_nodes=2, dir=home) as cluster:
        nodes = cluster.describe()["sql"]
        first, second = (connect(node) for node in nodes)
        ask(first, "CREATE DATABASE shop")
        forms(t, first, second)
        refusals(t, first)
        ask(first, "CREATE TABLE shop.w (id INT PRIMARY KEY, v INT, KEY (v))")
        with t.case("columns come and go under load"):
            under_load(t, cluster, nodes, "x")
        with t.case("a data node dies while columns come and go, and joins again"):
            under_load(t, cluster, nodes, "y", amid=lambda: cluster.kill(2))
            cluster.restart(2)
            cluster.wait_up(2)
            under_load(t, cluster, nodes, "z")
        dumped(t, cluster, first)
        rows = ask(first, "SELECT * FROM shop.w ORDER BY id"), ask(first, "SELECT * FROM shop.t ORDER BY id")
    with t.case("a start from the disks has the rows of all forms"), Cluster(t, name="again", sql_nodes=2, dir=home) as cluster:
        first = connect(cluster.describe()["sql"][0])
        check_equal((ask(first, "SELECT * FROM shop.w ORDER BY id"), ask(first, "SELECT * FROM shop.t ORDER BY id")), rows, "rows")


if __name__ == "__main__":
    scenario_main(body)
