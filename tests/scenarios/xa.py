"""XA: what is prepared outlives its session, its SQL node, each data node, and kill -9 of everything; others wait for it meanwhile; each branch ends once."""

import os
import random
import shutil
import signal
import threading

import pymysql

from lib.cluster import Cluster
from lib.harness import FULL, alive, check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (300, 900)
ACCOUNTS, BALANCE = 20, 1000
TRANSFERS = 400 if FULL else 60
# Rolled back, or not done: a client does it again.
AGAIN = (1205, 1213, 1297, 1402, 1614)
# The outcome is not known.
UNKNOWN = (1180, 2006, 2013)


def connect(where, **options):
    host, port = where
    return pymysql.connect(host=host, port=port, user="root", autocommit=True, **options)


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def code_of(connection, statement):
    """The number of the error, 0 without one."""
    try:
        ask(connection, statement)
    except pymysql.MySQLError as error:
        return error.args[0]
    return 0


def recover(connection):
    return sorted(row[3] if isinstance(row[3], str) else row[3].decode() for row in ask(connection, "XA RECOVER"))


def prepare(connection, xid, *statements):
    ask(connection, f"XA START '{xid}'")
    for statement in statements:
        ask(connection, statement)
    ask(connection, f"XA END '{xid}'")
    ask(connection, f"XA PREPARE '{xid}'")


def make(where):
    connection = connect(where)
    ask(connection, "CREATE DATABASE xa")
    ask(connection, "USE xa")
    ask(connection, "CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL, name VARCHAR(20) UNIQUE)")
    rows = ", ".join(f"({i}, {BALANCE}, 'n{i}')" for i in range(ACCOUNTS))
    ask(connection, f"INSERT INTO account VALUES {rows}")
    ask(connection, "CREATE TABLE moved (id VARCHAR(40) PRIMARY KEY)")
    ask(connection, "CREATE TABLE child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES account (id))")
    ask(connection, "CREATE TABLE large (id INT PRIMARY KEY, body LONGBLOB)")
    return connection


LARGE = 3_500_000
MANY = 20_000
# What `hold` prepares.
CHANGES = (
    "UPDATE account SET balance = balance - 7 WHERE id = 1",
    "UPDATE account SET balance = balance + 7 WHERE id = 2",
    "INSERT INTO account VALUES (100, 0, 'new')",
    "DELETE FROM account WHERE id = 3",
    # Two rows change their unique keys with each other.
    "UPDATE account SET name = 'x' WHERE id = 4",
    "UPDATE account SET name = 'n4' WHERE id = 5",
    "UPDATE account SET name = 'n5' WHERE id = 4",
    "INSERT INTO child VALUES (1, 6)",
    f"INSERT INTO large VALUES (1, REPEAT('x', {LARGE}))",
)


def check_held(connection):
    """The changes are not to be seen, and nobody gets in their way."""
    ask(connection, "USE xa")
    check_equal(recover(connection), ["held"], "prepared branches")
    check_equal(ask(connection, "SELECT balance, name FROM account WHERE id IN (1, 2, 3, 4, 5) ORDER BY id"), tuple((BALANCE, f"n{i}") for i in range(1, 6)), "rows")
    check_equal(ask(connection, "SELECT COUNT(*) FROM account"), ((ACCOUNTS,),), "accounts")
    check_equal(ask(connection, "SELECT COUNT(*) FROM child"), ((0,),), "children")
    check_equal(ask(connection, "SELECT COUNT(*) FROM large"), ((0,),), "large rows")
    ask(connection, "SET innodb_lock_wait_timeout = 1")
    for statement in (
        "UPDATE account SET balance = 0 WHERE id = 1",
        "SELECT * FROM account WHERE id = 3 FOR SHARE",
        "INSERT INTO account VALUES (100, 1, 'another')",
        "INSERT INTO account VALUES (101, 1, 'new')",
        "INSERT INTO account VALUES (102, 1, 'x')",
        "INSERT INTO child VALUES (2, 3)",
        # The prepared child has locked its parent.
        "UPDATE account SET balance = 1 WHERE id = 6",
        "DELETE FROM account WHERE id = 6",
        "INSERT INTO large VALUES (1, 'y')",
    ):
        # A key that the branch has taken and given back is free again only when it ends.
        check_equal(code_of(connection, statement), 1205, statement)
    check_equal(code_of(connection, "INSERT INTO child VALUES (7, 7)"), 0, "a row that nobody claims")
    check_equal(code_of(connection, "INSERT INTO child VALUES (8, 6)"), 0, "a parent is shared")
    ask(connection, "DELETE FROM child WHERE id IN (7, 8)")


def check_committed(connection):
    ask(connection, "USE xa")
    check_equal(recover(connection), [], "prepared branches")
    rows = dict((row[0], row[1:]) for row in ask(connection, "SELECT id, balance, name FROM account WHERE id IN (1, 2, 3, 4, 5, 100)"))
    wanted = {1: (BALANCE - 7, "n1"), 2: (BALANCE + 7, "n2"), 4: (BALANCE, "n5"), 5: (BALANCE, "n4"), 100: (0, "new")}
    check_equal(rows, wanted, "rows")
    for name, row in (("n4", 5), ("n5", 4), ("new", 100)):
        check_equal(ask(connection, f"SELECT id FROM account WHERE name = '{name}'"), ((row,),), f"who is {name}")
    check_equal(ask(connection, "SELECT id, parent FROM child"), ((1, 6),), "children")
    check_equal(ask(connection, "SELECT id, LENGTH(body), body = REPEAT('x', %d) FROM large" % LARGE), ((1, LARGE, 1),), "large rows")


def kill_everything(cluster):
    pids = [cluster.process.pid, *cluster.everyone().values()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    cluster.process.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids), 20, "all processes are gone")


class Coordinator(threading.Thread):
    """Moves money between accounts by branches, each prepared and then ended by another SQL node; does again what was rolled back."""

    def __init__(self, number, first, second, stop):
        super().__init__(daemon=True)
        self.number, self.where, self.stop = number, (first, second), stop
        self.random, self.done, self.error = random.Random(number), [], None

    def run(self):
        try:
            while not self.stop.is_set() and len(self.done) < TRANSFERS:
                self.transfer(f"c{self.number}-{len(self.done)}")
        except BaseException as error:
            self.error = error

    def transfer(self, name):
        # Whatever the answers say: the branch is prepared if it is listed, and committed if its row in `moved` is there.
        for attempt in range(1000):
            xid = f"{name}-{attempt}"
            if not self.prepare(name, xid):
                continue
            self.end(xid)
            self.done.append(name)
            return
        raise AssertionError(f"{name} was never prepared")

    def prepare(self, name, xid):
        source, target = self.random.sample(range(ACCOUNTS), 2)
        amount = self.random.randint(1, 9)
        try:
            with connect(self.where[0], database="xa") as connection:
                ask(connection, "SET innodb_lock_wait_timeout = 2")
                prepare(
                    connection,
                    xid,
                    f"UPDATE account SET balance = balance - {amount} WHERE id = {source}",
                    f"UPDATE account SET balance = balance + {amount} WHERE id = {target}",
                    f"INSERT INTO moved VALUES ('{name}')",
                )
                return True
        except pymysql.MySQLError as error:
            check(error.args[0] in AGAIN + UNKNOWN + (2003,), f"{xid}: {error}")
            if error.args[0] in UNKNOWN + (2003,):
                # Perhaps it is prepared: it is not to stay so.
                self.until(f"XA ROLLBACK '{xid}'", (0, 1397))
            return False

    def end(self, xid):
        self.until(f"XA COMMIT '{xid}'", (0,), (1397,))

    def until(self, statement, good, good_after_doubt=()):
        doubt = False
        while True:
            try:
                with connect(self.where[1], database="xa") as connection:
                    code = code_of(connection, statement)
            except pymysql.MySQLError as error:
                code = error.args[0]
            if code in good or doubt and code in good_after_doubt:
                return
            doubt |= code in UNKNOWN
            check(code in AGAIN + UNKNOWN + (2003,), f"{statement}: {code}")


def many(connection):
    """More than one page of what is held, more than one batch of changes; first rolled back, then committed."""
    ask(connection, "CREATE TABLE many (id INT PRIMARY KEY, u INT UNIQUE, v INT)")
    ask(connection, f"SET cte_max_recursion_depth = {MANY}")
    ask(connection, f"INSERT INTO many WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {MANY}) SELECT n, n, 0 FROM n")
    look = f"SELECT COUNT(*), SUM(v), SUM(u = id), SUM(u = {MANY + 1} - id), COUNT(DISTINCT u) FROM many"
    changes = ("UPDATE many SET u = -u, v = 1", f"UPDATE many SET u = {MANY + 1} + u", f"DELETE FROM many WHERE id > {MANY - 10}")
    prepare(connection, "many", *changes)
    before = ask(connection, look)
    ask(connection, "XA ROLLBACK 'many'")
    check_equal(ask(connection, look), before, "what was rolled back")
    check_equal(before, ((MANY, 0, MANY, 0, MANY),), "what is prepared is not to be seen")
    prepare(connection, "many", *changes)
    ask(connection, "XA COMMIT 'many'")
    check_equal(ask(connection, look), ((MANY - 10, MANY - 10, 0, MANY - 10, MANY - 10),), "what was committed")
    check_equal(ask(connection, f"SELECT id FROM many WHERE u = {MANY}"), ((1,),), "by the unique key")
    check_equal(ask(connection, "SELECT COUNT(*) FROM many WHERE u <= 10"), ((0,),), "keys that were given up")


def start(t, directory, name):
    """To be ended by [kill_everything], or as a context."""
    return Cluster(t, name=name, dir=directory, port=0).__enter__()


def main(t):
    directory = t.directory / "files"
    cluster = start(t, directory, "first")
    connection = make(cluster.sql)
    sql, where = cluster.more_sql("second")
    with t.case("a branch outlives its session and its SQL node"):
        holder = connect((where["host"], where["port"]), database="xa")
        prepare(holder, "held", *CHANGES)
        check_equal(code_of(holder, "XA START 'held'"), 1440, "a name that is prepared")
        os.kill(sql.pid, signal.SIGKILL)
        sql.wait()
        check_held(connection)
    with t.case("and each data node, whether it coordinated it, has it as primary or as backup"):
        for node in cluster.kill_each():
            t.say(f"data node {node} is back")
            check_held(connect(cluster.sql))
    with t.case("definitions wait for it"):
        connection = connect(cluster.sql, database="xa")
        ask(connection, "SET lock_wait_timeout = 1")
        for statement in ("DROP TABLE child", "TRUNCATE TABLE large", "ALTER TABLE account ADD COLUMN more INT", "CREATE UNIQUE INDEX u ON account (balance)"):
            check_equal(code_of(connection, statement), 1205, statement)
    kill_everything(cluster)
    cluster = start(t, directory, "again")
    with t.case("and kill -9 of all processes, where there is a directory"):
        connection = connect(cluster.sql)
        check_held(connection)
    with t.case("any session of any SQL node commits it, once"):
        _, where = cluster.more_sql("third")
        other = connect((where["host"], where["port"]))
        codes = []
        threads = [threading.Thread(target=lambda c=c: codes.append(code_of(c, "XA COMMIT 'held'"))) for c in (other, connection)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        check_equal(sorted(codes), [0, 1397], "answers to two XA COMMIT at once")
        check_committed(connection)
    prepare(connection, "gone", "UPDATE account SET balance = 0", "DELETE FROM large", "DELETE FROM child")
    kill_everything(cluster)
    cluster = start(t, directory, "third")
    with t.case("what is rolled back after another restart leaves nothing"):
        connection = connect(cluster.sql, database="xa")
        check_equal(recover(connection), ["gone"], "prepared branches")
        ask(connection, "XA ROLLBACK 'gone'")
        check_equal(code_of(connection, "XA ROLLBACK 'gone'"), 1397, "a second end")
        check_committed(connection)
        check_equal(ask(connection, "SELECT SUM(balance) FROM account"), (((ACCOUNTS - 1) * BALANCE,),), "money")
    prepare(connection, "kept", "UPDATE account SET balance = balance + 1 WHERE id = 9")
    ask(connection, "XA COMMIT 'kept'")
    kill_everything(cluster)
    with Cluster(t, name="fourth", dir=directory, port=0) as cluster:
        with t.case("a commit that was answered outlives kill -9 of all processes at once"):
            connection = connect(cluster.sql, database="xa")
            check_equal(recover(connection), [], "prepared branches")
            check_equal(ask(connection, "SELECT balance FROM account WHERE id = 9"), ((BALANCE + 1,),), "the row")
        with t.case(f"a branch of {MANY} rows, whose unique keys change places"):
            many(connection)
        with t.case("money moved by branches amid kill -9 of data nodes is exact"):
            ask(connection, "INSERT INTO account VALUES (3, 1000, 'n3')")
            _, where = cluster.more_sql("more")
            stop = threading.Event()
            before = ask(connection, "SELECT SUM(balance) FROM account")
            first, second = cluster.sql, (where["host"], where["port"])
            threads = [Coordinator(n, *((first, second) if n % 2 else (second, first)), stop) for n in range(4)]
            [thread.start() for thread in threads]
            for _ in cluster.kill_each():
                pass
            wait_until(lambda: all(len(thread.done) >= 10 or thread.error for thread in threads), 120, "money is moved")
            stop.set()
            [thread.join() for thread in threads]
            errors = [thread.error for thread in threads if thread.error]
            check(not errors, errors)
            connection = connect(cluster.sql, database="xa")
            check_equal(recover(connection), [], "branches that are left")
            check_equal(ask(connection, "SELECT SUM(balance) FROM account"), before, "the sum of all balances")
            done = {name for thread in threads for name in thread.done}
            check_equal({row[0] for row in ask(connection, "SELECT id FROM moved")}, done, "transfers that were acknowledged")
            t.say(f"{len(done)} transfers by branches")
    shutil.rmtree(directory)


if __name__ == "__main__":
    scenario_main(main)
