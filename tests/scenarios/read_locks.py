"""FLUSH TABLES WITH READ LOCK, FLUSH TABLES t WITH READ LOCK and LOCK INSTANCE FOR BACKUP over two SQL nodes: who waits and who reads, how the locks end, and that sessions
which take their snapshots under one lock see the same rows while others write all the time."""

import contextlib
import threading
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import check, check_equal, scenario_main, wait_until
from lib.sessions import Later, ask, connect, lock_and_dead_nodes, refused

LIMIT_SECONDS = (150, 240)
ACCOUNTS = 20


def everybody_waits(t, nodes):
    lock, here, there = connect(nodes[0]), connect(nodes[0]), connect(nodes[1])
    with t.case("under FLUSH TABLES WITH READ LOCK all read, and nobody writes, defines or commits"):
        other = connect(nodes[1], autocommit=False)
        ask(other, "UPDATE account SET amount = amount + 1 WHERE id = 1")
        ask(lock, "FLUSH TABLES")
        ask(lock, "FLUSH TABLES WITH READ LOCK")
        before = ask(lock, "SELECT SUM(amount) FROM account")
        check_equal(ask(there, "SELECT SUM(amount) FROM account"), before, "others read")
        check_equal(refused(lock, "UPDATE account SET amount = 0"), 1223, "a write of who has the lock")
        check_equal(refused(lock, "CREATE TABLE own (a INT)"), 1223, "a definition of who has the lock")
        waiters = [
            Later(here, "UPDATE account SET amount = amount + 1 WHERE id = 2"),
            Later(there, "INSERT INTO account VALUES (1000, 1)"),
            Later(other, "COMMIT"),
            Later(connect(nodes[1]), "CREATE TABLE later (a INT)"),
            Later(connect(nodes[0]), "SELECT * FROM account WHERE id = 3 FOR UPDATE"),
            Later(connect(nodes[0]), "CREATE USER later"),
        ]
        check(all([waiter.waits() for waiter in waiters]), "all wait")
        impatient = connect(nodes[1])
        ask(impatient, "SET lock_wait_timeout = 1")
        check_equal(refused(impatient, "DELETE FROM account"), 1205, "who waits for a second only")
        check_equal(ask(lock, "SELECT SUM(amount) FROM account"), before, "nothing has changed")
        ask(lock, "UNLOCK TABLES")
        for waiter in waiters:
            check_equal(waiter.done().error, None, f"{waiter.statements}")
        check_equal(ask(lock, "SELECT SUM(amount) FROM account"), before + 3, "all is written")
        ask(lock, "DELETE FROM account WHERE id = 1000")
        ask(lock, "DROP TABLE later")
        ask(lock, "DROP USER later")
    with t.case("two sessions have it; it ends with the last of them, and with KILL of who waits"):
        second = connect(nodes[1])
        ask(lock, "FLUSH TABLES WITH READ LOCK")
        ask(second, "FLUSH TABLES WITH READ LOCK")
        waiter = Later(here, "UPDATE account SET amount = amount + 1 WHERE id = 2")
        check(waiter.waits(), "it waits")
        ask(lock, "UNLOCK TABLES")
        check(waiter.waits(), "for the other one, too")
        ask(lock, f"KILL QUERY {waiter.id}")
        check_equal(waiter.done().error, 1317, "the one that was killed")
        waiter = Later(here, "UPDATE account SET amount = amount - 1 WHERE id = 2")
        check(waiter.waits(), "the next one waits")
        second.close()
        check_equal(waiter.done().error, None, "a connection that ends gives its lock back")
        ask(here, "UPDATE account SET amount = amount + 1 WHERE id = 2")
    with t.case("RESET CONNECTION gives it back; RELEASE_ALL_LOCKS does not"):
        ask(lock, "FLUSH TABLES WITH READ LOCK")
        check_equal(ask(lock, "SELECT GET_LOCK('mine', 0), RELEASE_ALL_LOCKS()"), (1, 1), "locks of functions")
        waiter = Later(here, "UPDATE account SET amount = amount WHERE id = 2")
        check(waiter.waits(), "it is held still")
        lock._execute_command(0x1F, b"")
        lock._read_ok_packet()
        check_equal(waiter.done().error, None, "after COM_RESET_CONNECTION")
    for connection in (lock, here, there):
        connection.close()


def some_tables(t, nodes):
    lock, there = connect(nodes[0]), connect(nodes[1])
    with t.case("FLUSH TABLES t WITH READ LOCK keeps writers from t alone"):
        ask(lock, "FLUSH TABLES account WITH READ LOCK")
        check_equal(refused(lock, "UPDATE account SET amount = 0"), 1099, "who has the lock writes")
        ask(there, "INSERT INTO note VALUES (1, 'x')")
        waiter = Later(there, "UPDATE account SET amount = amount WHERE id = 1")
        check(waiter.waits(), "a writer")
        definer = Later(connect(nodes[1]), "ALTER TABLE account ADD c INT")
        check(definer.waits(), "a definition")
        ask(lock, "UNLOCK TABLES")
        check_equal((waiter.done().error, definer.done().error), (None, None), "afterwards")
        ask(there, "ALTER TABLE account DROP c")
        ask(lock, "FLUSH TABLES account, note FOR EXPORT")
        waiter = Later(there, "DELETE FROM note")
        check(waiter.waits(), "FOR EXPORT")
        ask(lock, "BEGIN")
        check_equal(waiter.done().error, None, "a transaction that begins ends LOCK TABLES")
    with t.case("LOCK INSTANCE FOR BACKUP keeps definitions away, and no rows"):
        ask(lock, "ROLLBACK")
        ask(lock, "LOCK INSTANCE FOR BACKUP")
        ask(there, "INSERT INTO note VALUES (2, 'y')")
        definer = Later(there, "CREATE TABLE backup (a INT)")
        check(definer.waits(), "a definition")
        ask(lock, "CREATE TABLE mine (a INT)")
        ask(lock, "UNLOCK TABLES")
        check(definer.waits(), "UNLOCK TABLES is another matter")
        ask(lock, "UNLOCK INSTANCE")
        check_equal(definer.done().error, None, "afterwards")
    lock.close()
    there.close()


def snapshots_agree(t, nodes):
    with t.case("sessions that take snapshots under the lock see the same, while others write at both SQL nodes"):
        stop, errors, done = threading.Event(), [], [0]

        def transfer(number):
            try:
                with contextlib.closing(connect(nodes[number % 2], autocommit=False)) as own:
                    step = number
                    while not stop.is_set():
                        step += 7
                        ask(own, f"UPDATE account SET amount = amount - 1, changes = changes + 1 WHERE id = {step % ACCOUNTS}")
                        ask(own, f"UPDATE account SET amount = amount + 1, changes = changes + 1 WHERE id = {(step + 1 + number) % ACCOUNTS}")
                        ask(own, "COMMIT")
                        done[0] += 1
            except pymysql.MySQLError as error:
                if error.args[0] not in (1213, 1205):
                    errors.append(error)

        writers = [threading.Thread(target=transfer, args=(i,), daemon=True) for i in range(6)]
        for writer in writers:
            writer.start()
        lock = connect(nodes[0])
        for _ in range(4):
            readers = [connect(nodes[i % 2]) for i in range(4)]
            ask(lock, "FLUSH TABLES WITH READ LOCK")
            for reader in readers:
                ask(reader, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                ask(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            plain = ask(lock, "SELECT SUM(changes) FROM account")
            time.sleep(0.05)
            check_equal(ask(lock, "SELECT SUM(changes) FROM account"), plain, "nothing is committed under the lock")
            ask(lock, "UNLOCK TABLES")
            before = done[0]
            wait_until(lambda: done[0] > before or errors, 10, "writers go on")
            found = {ask(reader, "SELECT SUM(changes) FROM account") for reader in readers}
            check_equal(found, {plain}, "all snapshots")
            for reader in readers:
                reader.close()
        stop.set()
        for writer in writers:
            writer.join(30)
        check(not errors, f"{errors}")


def body(t):
    with Cluster(t, sql_nodes=2) as cluster:
        nodes = cluster.describe()["sql"]
        with contextlib.closing(pymysql.connect(host=nodes[0]["host"], port=nodes[0]["port"], user="root", autocommit=True)) as first:
            ask(first, "CREATE DATABASE shop")
            ask(first, "USE shop")
            ask(first, "CREATE TABLE account (id INT PRIMARY KEY, amount INT NOT NULL)")
            ask(first, "INSERT INTO account VALUES " + ", ".join(f"({i}, 100)" for i in range(ACCOUNTS)))
            ask(first, "CREATE TABLE note (id INT PRIMARY KEY, t VARCHAR(10))")
        everybody_waits(t, nodes)
        some_tables(t, nodes)
        with contextlib.closing(connect(nodes[0])) as first:
            ask(first, "ALTER TABLE account ADD changes INT NOT NULL DEFAULT 0")
        snapshots_agree(t, nodes)
        lock_and_dead_nodes(t, cluster, nodes, "FLUSH TABLES WITH READ LOCK", "UPDATE account SET amount = amount WHERE id = 1", within="SELECT COUNT(*) FROM account")


if __name__ == "__main__":
    scenario_main(body)
