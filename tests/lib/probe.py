"""One connection that commits updates all the time: what a client feels while nodes come and go."""

import threading
import time

import pymysql

from .harness import check


class Probe(threading.Thread):
    """Autocommit updates in a loop; remembers when each came back."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.connection = pymysql.connect(host=address[0], port=address[1], user="root", database="sbtest", autocommit=True)
        self.cursor = self.connection.cursor()
        self.cursor.execute("CREATE TABLE probe (id INT NOT NULL PRIMARY KEY, v BIGINT NOT NULL)")
        self.cursor.execute("INSERT INTO probe VALUES (1, 0)")
        self.stopping = threading.Event()
        self.commits, self.errors, self.gaps = 0, [], []

    def run(self):
        last = time.monotonic()
        while not self.stopping.is_set():
            try:
                self.cursor.execute("UPDATE probe SET v = v + 1 WHERE id = 1")
            except pymysql.MySQLError as error:
                self.errors.append(error.args)
                if len(self.errors) > 1000:
                    return
                continue
            now = time.monotonic()
            self.gaps.append((now - last, now))
            self.commits, last = self.commits + 1, now

    def end(self):
        self.stopping.set()
        self.join(30)
        check(not self.is_alive(), "the probe hangs in a statement")
        self.cursor.execute("SELECT v FROM probe WHERE id = 1")
        value = self.cursor.fetchone()[0]
        self.connection.close()
        return value
