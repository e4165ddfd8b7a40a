"""Connections to the database `shop` of a SQL node, and statements that wait for others."""

import threading
import time

import pymysql

from lib.harness import check


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
