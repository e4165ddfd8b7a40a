"""Temporary tables over two SQL nodes: each session has its own, they go on when a data node dies, and however a session or its SQL node ends, nothing of them is left."""

import contextlib
import socket

import mysql.connector
import pymysql
import sqlalchemy as sa

from lib.cluster import Cluster
from lib.harness import check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (240, 300)
# Seconds after which nothing is left: a lease stands still for 10, then others look every 2 (crates/sql/src/ddl/copy/abandoned.rs); a thread keeps empty ones for 20 (session/temporary/spare.rs).
GONE_SECONDS = 60
DROPPED = (1927, 2006, 2013)


def connect(node, **options):
    return pymysql.connect(host=node["host"], port=node["port"], user="root", database="test", autocommit=True, **options)


def ask(connection, statement, arguments=None):
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return cursor.fetchall()


def fails(connection, statement, *numbers):
    try:
        found = ask(connection, statement)
    except pymysql.MySQLError as error:
        return check(error.args[0] in numbers, f"{statement}: {error!r}")
    raise AssertionError(f"{statement}: no error but {found!r}")


def count(connection):
    """Temporary tables of all sessions, as the dictionary has them."""
    return int(ask(connection, "SHOW STATUS LIKE 'Apus_temporary_tables'")[0][1])


def seen(connection):
    """As `count`; a statement about a table makes the thread look whether its dictionary is the newest."""
    ask(connection, "SELECT COUNT(*) FROM item")
    return count(connection)


def nothing_left(connection, what):
    wait_until(lambda: seen(connection) == 0, GONE_SECONDS, f"no temporary table is left {what}")


def sessions(t, nodes):
    first, second, third = connect(nodes[0]), connect(nodes[0]), connect(nodes[1])
    with t.case("each session has its own table of a name, and all others the permanent one"):
        ask(first, "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))")
        ask(first, "INSERT INTO item VALUES (1, 'permanent')")
        for number, connection in enumerate([first, third]):
            ask(connection, "CREATE TEMPORARY TABLE item (id INT PRIMARY KEY AUTO_INCREMENT, owner INT)")
            ask(connection, "INSERT INTO item (owner) VALUES (%s), (%s)", (number, number))
        check_equal(ask(first, "SELECT * FROM item ORDER BY id"), ((1, 0), (2, 0)), "the first one's")
        check_equal(ask(third, "SELECT * FROM item ORDER BY id"), ((1, 1), (2, 1)), "the other SQL node's")
        check_equal(ask(second, "SELECT * FROM item"), ((1, "permanent"),), "a session of the same SQL node")
        check_equal(count(second), 2, "temporary tables of the cluster")
        for connection in (first, second, third):
            check_equal(ask(connection, "SHOW TABLES"), (("item",),), "the list")
        ask(first, "DROP TABLE item")
        check_equal(ask(first, "SELECT * FROM item"), ((1, "permanent"),), "behind the first one's")
        check_equal(ask(third, "SELECT COUNT(*) FROM item"), ((2,),), "the other SQL node's")
    with t.case("a table that is made again is empty and counts from 1, whoever had it before"):
        for number in range(40):
            connection = [first, second][number % 2]
            ask(connection, "CREATE TEMPORARY TABLE work (id INT PRIMARY KEY AUTO_INCREMENT, v INT, UNIQUE KEY (v))")
            check_equal(ask(connection, "SELECT COUNT(*) FROM work"), ((0,),), "rows of a new table")
            ask(connection, "INSERT INTO work (v) VALUES (1), (2), (3)")
            check_equal(ask(connection, "SELECT GROUP_CONCAT(id) FROM work"), (("1,2,3",),), "its counter")
            ask(connection, "DROP TEMPORARY TABLE work")
        wait_until(lambda: count(second) <= 12, 30, "tables are used again")
    with t.case("a snapshot does not show what a table held before"):
        ask(first, "CREATE TEMPORARY TABLE work (id INT PRIMARY KEY, v INT)")
        ask(first, "INSERT INTO work VALUES (1, 1), (2, 2)")
        ask(second, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        ask(second, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        ask(first, "DROP TEMPORARY TABLE work")
        for _ in range(5):
            ask(second, "CREATE TEMPORARY TABLE work (id INT PRIMARY KEY, v INT)")
            check_equal(ask(second, "SELECT * FROM work"), (), "rows of a new table")
            ask(second, "DROP TEMPORARY TABLE work")
        ask(second, "COMMIT")
    for connection in (first, second, third):
        connection.close()


def ends(t, nodes):
    watcher = connect(nodes[1])
    with t.case("COM_RESET_CONNECTION, COM_CHANGE_USER, KILL and a closed connection drop them"):
        reset, killed, closed, lost = (connect(nodes[0]) for _ in range(4))
        changed = mysql.connector.connect(host=nodes[0]["host"], port=nodes[0]["port"], user="root", database="test")
        for connection in (reset, killed, closed, lost):
            ask(connection, "CREATE TEMPORARY TABLE mine (id INT)")
            ask(connection, "BEGIN")
            ask(connection, "INSERT INTO mine VALUES (1)")
        with contextlib.closing(changed.cursor()) as cursor:
            cursor.execute("CREATE TEMPORARY TABLE mine (id INT)")
        wait_until(lambda: seen(watcher) >= 5, 10, "they are there")
        reset._execute_command(0x1F, b"")
        reset._read_ok_packet()
        fails(reset, "SELECT * FROM mine", 1146)
        changed.cmd_change_user("root", "", "test")
        with contextlib.closing(changed.cursor()) as cursor:
            try:
                cursor.execute("SELECT * FROM mine")
                check(False, "a table of before COM_CHANGE_USER")
            except mysql.connector.Error as error:
                check_equal(error.errno, 1146, "the error")
        ask(watcher, "SELECT 1")
        with contextlib.closing(connect(nodes[0])) as killer:
            ask(killer, f"KILL {killed.thread_id()}")
        closed.close()
        lost._sock.shutdown(socket.SHUT_RDWR)
        nothing_left(watcher, "of sessions that ended")
        changed.close()
    watcher.close()


def mapped(t, nodes):
    with t.case("SQLAlchemy makes, fills, joins and drops one"):
        engine = sa.create_engine(f"mysql+pymysql://root@{nodes[0]['host']}:{nodes[0]['port']}/test")
        metadata = sa.MetaData()
        chosen = sa.Table("chosen", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("note", sa.String(30), index=True), prefixes=["TEMPORARY"])
        item = sa.Table("item", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(20)))
        with engine.connect() as connection:
            for _ in range(3):
                with connection.begin():
                    chosen.create(connection)
                    connection.execute(sa.insert(chosen), [{"id": n, "note": f"n{n}"} for n in range(1, 101)])
                    rows = connection.execute(sa.select(item.c.name, chosen.c.note).join(chosen, chosen.c.id == item.c.id)).all()
                    check_equal([tuple(row) for row in rows], [("permanent", "n1")], "the join")
                with connection.begin():
                    check_equal(connection.execute(sa.select(sa.func.count()).select_from(chosen)).scalar(), 100, "rows after COMMIT")
                    connection.execute(sa.delete(chosen).where(chosen.c.id > 50))
                    connection.execute(sa.insert(item).from_select(["id", "name"], sa.select(chosen.c.id + 1000, chosen.c.note)))
                    connection.execute(sa.delete(item).where(item.c.id > 1000))
                    connection.execute(sa.text("DROP TEMPORARY TABLE chosen"))
        engine.dispose()


def failures(t, cluster, nodes):
    with t.case("a data node dies and comes back: sessions go on with their tables"):
        holder = connect(nodes[0])
        ask(holder, "CREATE TEMPORARY TABLE steady (id INT PRIMARY KEY, v INT, KEY (v))")
        ask(holder, "INSERT INTO steady VALUES " + ",".join(f"({n}, {n % 7})" for n in range(500)))
        for node in (2, 1):
            cluster.kill(node)
            cluster.wait_down(node)
            check_equal(ask(holder, "SELECT COUNT(*), SUM(v) FROM steady"), ((500, sum(n % 7 for n in range(500))),), f"rows without node {node}")
            check_equal(ask(holder, "SELECT COUNT(*) FROM steady WHERE v = 3"), ((71,),), "rows by an index")
            ask(holder, "CREATE TEMPORARY TABLE made_meanwhile (id INT)")
            ask(holder, "INSERT INTO made_meanwhile VALUES (1)")
            ask(holder, "DROP TEMPORARY TABLE made_meanwhile")
            cluster.restart(node)
            cluster.wait_up(node)
        check_equal(ask(holder, "SELECT COUNT(*) FROM steady"), ((500,),), "all rows")
    with t.case("a SQL node is killed: its tables are gone some seconds later"):
        process, node = cluster.more_sql()
        doomed = connect(node)
        for number in range(5):
            ask(doomed, f"CREATE TEMPORARY TABLE doomed_{number} (id INT PRIMARY KEY, v INT UNIQUE)")
            ask(doomed, f"INSERT INTO doomed_{number} VALUES (1, 1)")
        with contextlib.closing(connect(nodes[1])) as watcher:
            wait_until(lambda: seen(watcher) >= 6, 10, "they are there")
            process.kill()
            wait_until(lambda: seen(watcher) <= 1 + 2, GONE_SECONDS, "those of the dead one are gone")
            check_equal(ask(holder, "SELECT COUNT(*) FROM steady"), ((500,),), "those of the living are there")
            holder.close()
            nothing_left(watcher, "after all")


def body(t):
    with Cluster(t, sql_nodes=2) as cluster:
        nodes = cluster.describe()["sql"]
        sessions(t, nodes)
        mapped(t, nodes)
        ends(t, nodes)
        failures(t, cluster, nodes)


if __name__ == "__main__":
    scenario_main(body)
