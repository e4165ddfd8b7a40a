"""Connections to the database `shop` of a SQL node, statements that wait for others, and locks that outlive nodes or do not."""

import threading
import time

import pymysql

from lib.harness import check, check_equal

# Seconds after which others take the locks of a SQL node that is dead (crates/sql/src/session/user_lock/lease.rs, DEAD), and some to find out.
DEAD_SECONDS = 10
SOME = 8


def connect(node, **options):
    return pymysql.connect(host=node["host"], port=node["port"], user="root", database="shop", **{"autocommit": True, **options})


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
        return row[0] if row and len(row) == 1 else row


def refused(connection, statement):
    try:
        ask(connection, statement)
    except pymysql.MySQLError as error:
        return error.args[0]
    return None


class Later(threading.Thread):
    """Runs statements on a connection and keeps the error, or none."""

    def __init__(self, connection, *statements):
        super().__init__(daemon=True)
        self.connection, self.statements, self.error, self.took = connection, statements, None, None
        self.id = ask(connection, "SELECT CONNECTION_ID()")
        self.start()

    def run(self):
        begin = time.monotonic()
        for statement in self.statements:
            self.error = refused(self.connection, statement)
        self.took = time.monotonic() - begin

    def waits(self):
        """It has not ended after a time that is long for a statement that nobody keeps."""
        self.join(0.7)
        return self.is_alive()

    def done(self, seconds=20):
        self.join(seconds)
        check(not self.is_alive(), f"{self.statements} does not end")
        return self


def lock_and_dead_nodes(t, cluster, nodes, lock, kept, within):
    """The statement `lock` keeps `kept` waiting at another SQL node: until its own SQL node has been dead for a while, and also while a data node dies and comes back. `within` is what its session may do then."""
    with t.case("a SQL node whose session has the lock is killed: others go on"):
        process, node = cluster.more_sql()
        doomed = connect(node)
        ask(doomed, lock)
        waiting = Later(connect(nodes[1]), kept)
        check(waiting.waits(), "it waits")
        process.kill()
        check_equal(waiting.done(DEAD_SECONDS + SOME + 10).error, None, kept)
        check(DEAD_SECONDS - 2 < waiting.took < DEAD_SECONDS + SOME + 2, f"it waited for {waiting.took} s")
    with t.case("a data node dies and comes back: the lock stays"):
        holder, other = connect(nodes[0]), connect(nodes[1])
        ask(holder, lock)
        cluster.kill(2)
        cluster.wait_down(2)
        waiting = Later(other, kept)
        check(waiting.waits(), "it waits")
        cluster.restart(2)
        cluster.wait_up(2)
        ask(holder, within)
        check(waiting.waits(), "it waits still")
        ask(holder, "UNLOCK TABLES")
        check_equal(waiting.done().error, None, kept)
