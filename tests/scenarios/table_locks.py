"""LOCK TABLES over two SQL nodes: who waits and who does not, how the locks end, a dump restored beside other clients, and that nobody loses an update who counts under WRITE locks."""

import contextlib
import threading
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import check, check_equal, scenario_main
from lib.sessions import Later, ask, connect, lock_and_dead_nodes, refused

LIMIT_SECONDS = (200, 300)
# Of a dump. Each table would take half a second where each lock was told to all SQL nodes.
TABLES = 60


def within_a_node(t, nodes):
    lock, other = connect(nodes[0]), connect(nodes[0])
    with t.case("WRITE keeps readers, writers and definitions away, of this table alone"):
        ask(lock, "LOCK TABLES a WRITE")
        waiters = [Later(connect(nodes[0]), s) for s in ("SELECT * FROM a", "UPDATE a SET n = n", "ALTER TABLE a ADD c INT", "LOCK TABLES a READ", "SELECT * FROM va")]
        check(all([waiter.waits() for waiter in waiters]), "all wait")
        ask(other, "UPDATE b SET n = n + 1")
        ask(other, "SET lock_wait_timeout = 1")
        check_equal(refused(other, "SELECT * FROM a"), 1205, "who waits for a second only")
        check_equal(refused(other, "LOCK TABLES a WRITE"), 1205, "and for a lock")
        ask(lock, f"KILL QUERY {waiters[0].id}")
        check_equal(waiters[0].done().error, 1317, "the one that was killed")
        ask(lock, "UPDATE a SET n = n + 1")
        ask(lock, "UNLOCK TABLES")
        check_equal(waiters[3].done().error, None, "the other lock")
        waiters[3].connection.close()
        check_equal([waiter.done().error for waiter in waiters[1:]], [None] * 4, "afterwards")
        ask(other, "ALTER TABLE a DROP c")
    with t.case("READ keeps writers away; several have it at a time"):
        ask(lock, "LOCK TABLES a READ, b WRITE")
        second = connect(nodes[0])
        ask(second, "LOCK TABLES a READ")
        ask(other, "SELECT * FROM a")
        writer = Later(other, "SET lock_wait_timeout = 100", "UPDATE a SET n = n + 1")
        check(writer.waits(), "a writer")
        ask(lock, "UNLOCK TABLES")
        check(writer.waits(), "for the other one, too")
        second.close()
        check_equal(writer.done().error, None, "a connection that ends gives its lock back")
    with t.case("a lock waits for transactions that have used the table, and for no others"):
        reader = connect(nodes[0], autocommit=False)
        ask(reader, "SELECT * FROM a")
        writer = connect(nodes[0], autocommit=False)
        ask(writer, "UPDATE b SET n = n + 1")
        taker = Later(lock, "LOCK TABLES a WRITE")
        check(taker.waits(), "the lock")
        late = Later(connect(nodes[0]), "SELECT * FROM a")
        check(late.waits(), "who begins waits for the lock")
        ask(reader, "SELECT * FROM a")
        ask(reader, "COMMIT")
        check_equal(taker.done().error, None, "the lock")
        check(late.waits(), "for its end")
        waiting = Later(writer, "SELECT * FROM a", "COMMIT")
        check(waiting.waits(), "a transaction that has other tables")
        ask(lock, "UNLOCK TABLES")
        check_equal((late.done().error, waiting.done().error), (None, None), "afterwards")
    with t.case("BEGIN, LOCK TABLES, KILL and RESET CONNECTION end a lock"):
        for statement in ("BEGIN", "LOCK TABLES b READ"):
            ask(lock, "LOCK TABLES a WRITE")
            waiter = Later(connect(nodes[0]), "SELECT * FROM a")
            check(waiter.waits(), "it waits")
            ask(lock, statement)
            check_equal(waiter.done().error, None, statement)
        doomed = connect(nodes[0])
        ask(doomed, "LOCK TABLES a WRITE")
        waiter = Later(connect(nodes[0]), "SELECT * FROM a")
        check(waiter.waits(), "it waits")
        ask(other, f"KILL {ask(doomed, 'SELECT CONNECTION_ID()')}")
        check_equal(waiter.done().error, None, "KILL")
        ask(lock, "LOCK TABLES a WRITE")
        waiter = Later(connect(nodes[0]), "SELECT * FROM a")
        lock._execute_command(0x1F, b"")
        lock._read_ok_packet()
        check_equal(waiter.done().error, None, "COM_RESET_CONNECTION")
    with t.case("what triggers and foreign keys use is locked"):
        ask(lock, "LOCK TABLES noted WRITE")
        waiters = [Later(connect(nodes[0]), "UPDATE note SET n = 1"), Later(connect(nodes[0]), "DELETE FROM kept")]
        check(all([waiter.waits() for waiter in waiters]), "they wait")
        ask(lock, "INSERT INTO noted VALUES (1, 1)")
        ask(lock, "UNLOCK TABLES")
        check_equal([waiter.done().error for waiter in waiters], [None, 1451], "afterwards")
    for connection in (lock, other):
        connection.close()


def between_nodes(t, nodes):
    lock, there = connect(nodes[0]), connect(nodes[1])
    with t.case("sessions of another SQL node are kept away, from locked tables alone"):
        ask(lock, "LOCK TABLES a WRITE")
        waiters = [Later(connect(nodes[1]), s) for s in ("SELECT * FROM a", "UPDATE a SET n = n", "ALTER TABLE a COMMENT 'x'", "LOCK TABLES a READ")]
        ask(there, "UPDATE b SET n = n + 1")
        ask(there, "SELECT * FROM b")
        check(all([waiter.waits() for waiter in waiters]), "all wait")
        ask(lock, "UPDATE a SET n = n + 1")
        ask(lock, "UNLOCK TABLES")
        check_equal(waiters[3].done().error, None, "the other lock")
        waiters[3].connection.close()
        check_equal([waiter.done().error for waiter in waiters], [None] * 4, "afterwards")
    with t.case("READ locks of both SQL nodes, and FLUSH TABLES WITH READ LOCK among them"):
        ask(lock, "LOCK TABLES a READ")
        ask(there, "LOCK TABLES a READ")
        flusher = connect(nodes[1])
        ask(flusher, "FLUSH TABLES WITH READ LOCK")
        taker = Later(connect(nodes[0]), "LOCK TABLES b WRITE")
        check(taker.waits(), "a WRITE lock")
        ask(flusher, "UNLOCK TABLES")
        check_equal(taker.done().error, None, "afterwards")
        waiting = Later(flusher, "FLUSH TABLES WITH READ LOCK")
        check(waiting.waits(), "FLUSH TABLES WITH READ LOCK waits for it")
        ask(taker.connection, "UNLOCK TABLES")
        check_equal(waiting.done().error, None, "and has it then")
        flusher.close()
        ask(lock, "UNLOCK TABLES")
        ask(there, "UNLOCK TABLES")
    with t.case("a transaction of another SQL node that has written the table makes way"):
        other = connect(nodes[1], autocommit=False)
        ask(other, "UPDATE a SET n = n + 100")
        ask(lock, "LOCK TABLES a WRITE")
        before = ask(lock, "SELECT n FROM a WHERE id = 1")
        check_equal(refused(other, "COMMIT"), 1213, "its COMMIT")
        ask(lock, "UPDATE a SET n = n + 1")
        check_equal(ask(lock, "SELECT n FROM a WHERE id = 1"), before + 1, "nothing of it is there")
        ask(lock, "UNLOCK TABLES")
        other.close()
    for connection in (lock, there):
        connection.close()


def nobody_loses(t, nodes):
    with t.case("counting by SELECT and UPDATE under WRITE locks at both SQL nodes loses nothing"):
        rounds, errors = 6, []

        def count(number):
            try:
                with contextlib.closing(connect(nodes[number % 2])) as own:
                    for _ in range(rounds):
                        ask(own, "LOCK TABLES b WRITE")
                        n = ask(own, "SELECT n FROM b WHERE id = 2")
                        ask(own, f"UPDATE b SET n = {n + 1} WHERE id = 2")
                        ask(own, "UNLOCK TABLES")
            except Exception as error:  # noqa: BLE001
                errors.append(error)

        with contextlib.closing(connect(nodes[0])) as first:
            before = ask(first, "SELECT n FROM b WHERE id = 2")
            counters = [threading.Thread(target=count, args=(number,), daemon=True) for number in range(4)]
            for counter in counters:
                counter.start()
            for counter in counters:
                counter.join(120)
                check(not counter.is_alive(), "a counter does not end")
            check(not errors, f"{errors}")
            check_equal(ask(first, "SELECT n FROM b WHERE id = 2"), before + 4 * rounds, "the sum")


def a_dump(t, nodes):
    with t.case(f"{TABLES} tables of a dump take no half second each"):
        with contextlib.closing(connect(nodes[0])) as restore:
            ask(restore, "CREATE DATABASE restored")
            ask(restore, "USE restored")
            begin = time.monotonic()
            for number in range(TABLES):
                ask(restore, f"CREATE TABLE t{number} (id INT PRIMARY KEY)")
                ask(restore, f"LOCK TABLES t{number} WRITE")
                ask(restore, f"ALTER TABLE t{number} DISABLE KEYS")
                ask(restore, f"INSERT INTO t{number} VALUES (1), (2), (3)")
                ask(restore, f"ALTER TABLE t{number} ENABLE KEYS")
                ask(restore, "UNLOCK TABLES")
            took = time.monotonic() - begin
            check(took < TABLES * 0.5 / 2, f"{took} s")
            with contextlib.closing(connect(nodes[1])) as other:
                check_equal(ask(other, "SELECT COUNT(*) FROM restored.t7"), 3, "the other SQL node gets the database back")


def body(t):
    with Cluster(t, sql_nodes=2) as cluster:
        nodes = cluster.describe()["sql"]
        with contextlib.closing(pymysql.connect(host=nodes[0]["host"], port=nodes[0]["port"], user="root", autocommit=True)) as first:
            for statement in (
                "CREATE DATABASE shop",
                "USE shop",
                "CREATE TABLE a (id INT PRIMARY KEY, n INT NOT NULL)",
                "CREATE TABLE b LIKE a",
                "CREATE VIEW va AS SELECT * FROM a",
                "INSERT INTO a VALUES (1, 0), (2, 0)",
                "INSERT INTO b VALUES (1, 0), (2, 0)",
                "CREATE TABLE kept (id INT PRIMARY KEY)",
                "INSERT INTO kept VALUES (1)",
                "CREATE TABLE note (n INT)",
                "CREATE TABLE noted (id INT PRIMARY KEY, k INT, FOREIGN KEY (k) REFERENCES kept (id))",
                "CREATE TRIGGER noted_ai AFTER INSERT ON noted FOR EACH ROW INSERT INTO note VALUES (NEW.id)",
            ):
                ask(first, statement)
        within_a_node(t, nodes)
        between_nodes(t, nodes)
        nobody_loses(t, nodes)
        a_dump(t, nodes)
        lock_and_dead_nodes(t, cluster, nodes, "LOCK TABLES a WRITE", "SELECT * FROM a", within="UPDATE a SET n = n + 1")


if __name__ == "__main__":
    scenario_main(body)
