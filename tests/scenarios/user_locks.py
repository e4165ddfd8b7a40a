"""GET_LOCK and its kin over two SQL nodes: who waits and who gets it, how locks end with their session, with the death of a data node, of a SQL node, and of one
that hangs, whose sessions lose them before others take them."""

import contextlib
import os
import signal
import threading
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import check, check_equal, end, scenario_main, wait_until

LIMIT_SECONDS = (150, 240)
# Seconds after which others take the locks of a SQL node that does nothing (crates/sql/src/session/user_lock/lease.rs, DEAD), and some to find out.
DEAD_SECONDS = 10
SOME = 8


def connect(node, **options):
    return pymysql.connect(host=node["host"], port=node["port"], user="root", autocommit=True, **options)


def ask(connection, statement, arguments=None):
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        row = cursor.fetchone()
        return row[0] if row and len(row) == 1 else row


class Waiter(threading.Thread):
    """Asks for a lock and keeps the answer."""

    def __init__(self, node, name, seconds):
        super().__init__(daemon=True)
        self.connection, self.name, self.seconds = connect(node), name, seconds
        self.id = ask(self.connection, "SELECT CONNECTION_ID()")
        self.answer = self.error = self.took = None
        self.start()

    def run(self):
        begin = time.monotonic()
        try:
            self.answer = ask(self.connection, "SELECT GET_LOCK(%s, %s)", (self.name, self.seconds))
        except pymysql.MySQLError as error:
            self.error = error
        self.took = time.monotonic() - begin

    def done(self, seconds=20):
        self.join(seconds)
        check(not self.is_alive(), f"nobody answers who waits for {self.name}")
        return self


def one_at_a_time(t, nodes):
    first, second = (connect(node) for node in nodes)
    with t.case("one session has a lock, as often as it asks; others wait or give up"):
        check_equal(ask(first, "SELECT GET_LOCK('job', 0), GET_LOCK('JOB', 5), IS_FREE_LOCK('job'), RELEASE_LOCK('nobody')"), (1, 1, 0, None), "two times")
        check_equal(ask(second, "SELECT GET_LOCK('job', 0), IS_USED_LOCK('job'), IS_FREE_LOCK('other'), RELEASE_LOCK('job')"),
                    (0, ask(first, "SELECT CONNECTION_ID()"), 1, 0), "through the other SQL node")
        begin = time.monotonic()
        check_equal(ask(second, "SELECT GET_LOCK('job', 1)"), 0, "a second later")
        check(0.9 < time.monotonic() - begin < 3, "it waits for a second")
        check_equal(ask(first, "SELECT RELEASE_LOCK('job')"), 1, "once")
        check_equal(ask(second, "SELECT GET_LOCK('job', 0)"), 0, "it is held still")
        waiter = Waiter(nodes[1], "job", -1)
        ask(first, "DO RELEASE_LOCK('job')")
        waiter.done()
        check_equal((waiter.answer, waiter.error), (1, None), "who waited without end")
        check(waiter.took < 3, f"it got it after {waiter.took} s")
        waiter.connection.close()
        wait_until(lambda: ask(first, "SELECT IS_FREE_LOCK('job')") == 1, 5, "the lock of a closed connection is free")
    with t.case("variables, conditions, prepared statements and several locks of a statement"):
        ask(first, "SET @got = GET_LOCK('a', 0) + GET_LOCK('b', 0)")
        check_equal(ask(first, "SELECT @got"), 2, "both")
        check_equal(ask(first, "SELECT IF(0, GET_LOCK('never', 0), 'no')"), "no", "what is not asked for")
        check_equal(ask(second, "SELECT IS_FREE_LOCK('never')"), 1, "is not taken")
        ask(first, "PREPARE p FROM 'SELECT GET_LOCK(?, ?)'")
        ask(first, "SET @name = 'c', @wait = 0")
        check_equal(ask(first, "EXECUTE p USING @name, @wait"), 1, "prepared")
        check_equal(ask(second, "SELECT COUNT(*) FROM (SELECT 'a' AS n UNION SELECT 'b' UNION SELECT 'c') x WHERE IS_USED_LOCK(n) IS NOT NULL"), 3, "one for each row")
        check_equal(ask(first, "SELECT RELEASE_ALL_LOCKS()"), 3, "all")
        check_equal(ask(second, "SELECT IS_FREE_LOCK('a') + IS_FREE_LOCK('b') + IS_FREE_LOCK('c')"), 3, "free")
    with t.case("a transaction keeps what it did before it waited, and no lock is rolled back"):
        ask(first, "CREATE TABLE test.l (id INT PRIMARY KEY, v INT)")
        ask(first, "BEGIN")
        ask(first, "INSERT INTO test.l VALUES (1, 1)")
        ask(first, "INSERT INTO test.l VALUES (2, GET_LOCK('mid', 0))")
        ask(first, "UPDATE test.l SET v = v + 1 WHERE id = 1")
        ask(first, "COMMIT")
        check_equal(ask(second, "SELECT GROUP_CONCAT(id, ':', v ORDER BY id) FROM test.l"), "1:2,2:1", "rows")
        ask(first, "BEGIN")
        ask(first, "DO GET_LOCK('kept', 0)")
        ask(first, "ROLLBACK")
        check_equal(ask(second, "SELECT GET_LOCK('kept', 0)"), 0, "after a rollback")
    with t.case("KILL ends a waiter; RESET gives back what the connection has"):
        waiter = Waiter(nodes[1], "kept", 60)
        wait_until(lambda: ask(second, f"KILL QUERY {waiter.id}") or not waiter.is_alive(), 10, "it is killed")
        check_equal(waiter.error and waiter.error.args[0], 1317, "the waiter's error")
        check_equal(ask(waiter.connection, "SELECT IS_FREE_LOCK('kept')"), 0, "its connection lives")
        first._execute_command(0x1F, b"")
        first._read_ok_packet()
        check_equal(ask(second, "SELECT IS_FREE_LOCK('kept')"), 1, "after COM_RESET_CONNECTION")
    first.close()
    second.close()


def counted(t, nodes):
    with t.case("eight sessions at two SQL nodes count under a lock, and lose nothing"):
        with contextlib.closing(connect(nodes[0])) as connection:
            ask(connection, "CREATE TABLE test.count (id INT PRIMARY KEY, v INT)")
            ask(connection, "INSERT INTO test.count VALUES (1, 0)")
        errors = []

        def count(node):
            try:
                with contextlib.closing(connect(node)) as own:
                    for _ in range(25):
                        check_equal(ask(own, "SELECT GET_LOCK('count', 60)"), 1, "the lock")
                        value = ask(own, "SELECT v FROM test.count")
                        ask(own, f"UPDATE test.count SET v = {value + 1}")
                        check_equal(ask(own, "SELECT RELEASE_LOCK('count')"), 1, "it is given back")
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=count, args=(nodes[i % 2],), daemon=True) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        check(not errors and not any(thread.is_alive() for thread in threads), f"{errors}")
        with contextlib.closing(connect(nodes[0])) as connection:
            check_equal(ask(connection, "SELECT v FROM test.count"), 200, "the count")


def failures(t, cluster, nodes):
    with t.case("a data node dies: locks stay with their sessions"):
        holder, other = connect(nodes[0]), connect(nodes[1])
        check_equal(ask(holder, "SELECT GET_LOCK('steady', 0)"), 1, "the lock")
        cluster.kill(2)
        cluster.wait_down(2)
        check_equal(ask(other, "SELECT GET_LOCK('steady', 2)"), 0, "the other one waits in vain")
        cluster.restart(2)
        cluster.wait_up(2)
        check_equal(ask(holder, "SELECT RELEASE_LOCK('steady')"), 1, "it is given back")
        check_equal(ask(other, "SELECT GET_LOCK('steady', 5)"), 1, "and taken")
        holder.close()
    with t.case("a SQL node hangs: its session loses the lock before another one gets it"):
        hung = connect(nodes[0])
        check_equal(ask(hung, "SELECT GET_LOCK('hung', 0)"), 1, "the lock")
        os.kill(nodes[0]["pid"], signal.SIGSTOP)
        try:
            waiter = Waiter(nodes[1], "hung", 60).done(DEAD_SECONDS + SOME + 10)
        finally:
            os.kill(nodes[0]["pid"], signal.SIGCONT)
        check_equal((waiter.answer, waiter.error), (1, None), "the waiter")
        check(DEAD_SECONDS - 2 < waiter.took < DEAD_SECONDS + SOME, f"it waited for {waiter.took} s")
        try:
            check(False, f"who lost the lock goes on: {ask(hung, 'SELECT 1')}")
        except pymysql.MySQLError as error:
            check(error.args[0] in (1927, 2013, 2006), f"{error!r}")
        waiter.connection.close()
    with t.case("a SQL node is killed: its locks go to who waits"):
        process, node = cluster.more_sql()
        doomed = connect(node)
        check_equal(ask(doomed, "SELECT GET_LOCK('x', 0), GET_LOCK('y', 0)"), (1, 1), "two locks")
        process.kill()
        waiter = Waiter(nodes[1], "x", 60).done(DEAD_SECONDS + SOME + 10)
        check_equal((waiter.answer, waiter.error), (1, None), "the waiter")
        check_equal(ask(other, "SELECT IS_FREE_LOCK('y'), GET_LOCK('y', 5)"), (1, 1), "the other lock of the dead one is free by then")


def body(t):
    with Cluster(t, sql_nodes=2) as cluster:
        nodes = cluster.describe()["sql"]
        one_at_a_time(t, nodes)
        counted(t, nodes)
        failures(t, cluster, nodes)


if __name__ == "__main__":
    scenario_main(body)
