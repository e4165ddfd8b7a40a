"""Multi-valued indexes: clients of two SQL nodes change the arrays of rows, in transactions that are rolled back too, while data nodes are killed; afterwards each element leads to the rows that have
it, and to no other. Rows with a thousand elements; a dump loaded again."""

import json
import random
import threading

import pymysql

from lib.asking import ask, connect, refused
from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, scenario_main, wait_until
from lib.mariadb import dump, load

LIMIT_SECONDS = (240, 600)
SIDE_BY_SIDE = True
ELEMENTS = 12
ROWS = 60
# Changes of each client between two faults.
CHANGES = 200 if FULL else 20
# What a client may be told where others or a dead node were in the way.
GIVEN_UP = (1062, 1213, 1205, 1297, 1180)

SCHEMA = """
CREATE DATABASE mvi; USE mvi;
CREATE TABLE t (id INT PRIMARY KEY, kind INT, doc JSON, KEY n ((CAST(doc->'$.n' AS UNSIGNED ARRAY))), KEY kn (kind, (CAST(doc->'$.n' AS SIGNED ARRAY))));
CREATE TABLE u (id INT PRIMARY KEY, doc JSON, UNIQUE KEY n ((CAST(doc->'$.n' AS UNSIGNED ARRAY))));
CREATE TABLE big (id INT PRIMARY KEY, doc JSON, KEY n ((CAST(doc->'$.n' AS UNSIGNED ARRAY))), KEY s ((CAST(doc->'$.n' AS CHAR(12) ARRAY))));
"""


def document(numbers):
    return json.dumps({"n": sorted(numbers)})


def change(cursor, chance):
    """One statement, or a transaction of some."""

    def some():
        return document(chance.sample(range(ELEMENTS), chance.randrange(5)))

    row = chance.randrange(ROWS)
    statements = [
        ("REPLACE INTO t VALUES (%s, %s, %s)", (row, row % 3, some())),
        ("UPDATE t SET doc = %s WHERE id = %s", (some(), row)),
        ("UPDATE t SET kind = kind + 1 WHERE %s MEMBER OF (doc->'$.n') AND id < %s", (chance.randrange(ELEMENTS), row)),
        ("DELETE FROM t WHERE JSON_OVERLAPS(doc->'$.n', %s) AND id = %s", (json.dumps([1, 2]), row)),
        ("REPLACE INTO u VALUES (%s, %s)", (row, some())),
        ("INSERT IGNORE INTO u VALUES (%s, %s)", (row, some())),
    ]
    if chance.randrange(3):
        cursor.execute(*chance.choice(statements))
        return
    cursor.execute("BEGIN")
    for _ in range(1 + chance.randrange(3)):
        cursor.execute(*chance.choice(statements))
    cursor.execute(chance.choice(["COMMIT", "ROLLBACK"]))


def agrees(connection, table):
    """Each element leads to the rows that a look at all of them finds."""
    rows = [(row, set(json.loads(doc)["n"])) for row, doc in ask(connection, f"SELECT id, doc FROM {table} IGNORE INDEX (n) ORDER BY id")]
    for element in range(ELEMENTS):
        found = [row for (row,) in ask(connection, f"SELECT id FROM {table} WHERE {element} MEMBER OF (doc->'$.n') ORDER BY id")]
        check_equal(found, [row for row, numbers in rows if element in numbers], f"rows of {table} with {element}")
    return rows


class Client(threading.Thread):
    """Changes rows that others change, too."""

    def __init__(self, connection, number):
        super().__init__(daemon=True)
        self.connection, self.chance = connection, random.Random(number)
        self.done, self.wrong, self.stopping = 0, None, threading.Event()

    def run(self):
        try:
            while not self.stopping.is_set():
                self.one()
                self.done += 1
        except Exception as error:  # noqa: BLE001 - told by whoever joins
            self.wrong = error

    def one(self):
        try:
            with self.connection.cursor() as cursor:
                change(cursor, self.chance)
        except pymysql.MySQLError as error:
            check(error.args[0] in GIVEN_UP, f"{error}")
            self.connection.rollback()

    def goes_on(self):
        before = self.done
        wait_until(lambda: self.done > before + CHANGES or self.wrong, 60, "a client goes on")


def under_failures(t, cluster):
    with t.case("elements lead to the rows that have them, after clients of two SQL nodes have changed rows while data nodes were killed"):
        clients = [Client(connect(cluster, number % 2, "mvi"), number) for number in range(4)]
        [client.start() for client in clients]
        for node in (1, 2):
            [client.goes_on() for client in clients]
            cluster.kill(node)
            [client.goes_on() for client in clients]
            cluster.wait_down(node)
            cluster.restart(node)
            cluster.wait_up(node)
            [client.goes_on() for client in clients]
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(60)
            check(not client.is_alive() and client.wrong is None, f"{client.wrong!r}")
        for node in (0, 1):
            reader = connect(cluster, node, "mvi")
            check(agrees(reader, "t"), "rows are left")
            numbers = [number for _, numbers in agrees(reader, "u") for number in numbers]
            check_equal(len(numbers), len(set(numbers)), "elements of a unique index, each once")
        t.say(f"{sum(client.done for client in clients)} changes")


def many(t, first):
    with t.case("rows with a thousand elements come, change and go together"):
        numbers = document(range(1000))
        for at in range(0, 60, 20):
            ask(first, "INSERT INTO big VALUES " + ", ".join(f"({at + n}, '{numbers}')" for n in range(20)))
        check_equal(ask(first, "SELECT COUNT(*) FROM big WHERE 999 MEMBER OF (doc->'$.n')"), ((60,),), "rows with 999")
        check_equal(ask(first, "SELECT COUNT(*) FROM big WHERE '77' MEMBER OF (doc->'$.n')"), ((60,),), "rows with '77'")
        ask(first, "UPDATE big SET doc = JSON_SET(doc, '$.n', JSON_ARRAY(id)) WHERE id >= 30")
        check_equal(ask(first, "SELECT COUNT(*) FROM big WHERE 999 MEMBER OF (doc->'$.n')"), ((30,),), "rows with 999")
        ask(first, "DELETE FROM big WHERE 999 MEMBER OF (doc->'$.n')")
        check_equal(ask(first, "SELECT COUNT(*) FROM big"), ((30,),), "rows that are left")
        refused(first, f"INSERT INTO big VALUES (1, '{document(range(1605))}')", 3905)


def dumped(t, cluster, first):
    with t.case("a dump is loaded again, and finds rows by elements"):
        text = dump(cluster, "mvi")
        check("array" in text, "the dump has the indexes")
        ask(first, "CREATE DATABASE mvi_copy")
        load(cluster, text, database="mvi_copy")
        for table in ("t", "u", "big"):
            made = [ask(first, f"SHOW CREATE TABLE {database}.{table}") for database in ("mvi", "mvi_copy")]
            check_equal(made[1], made[0], f"definition of {table}")
        for table in ("t", "u"):
            agrees(first, f"mvi_copy.{table}")
        check_equal(ask(first, "SELECT id FROM mvi_copy.big WHERE 31 MEMBER OF (doc->'$.n')"), ((31,),), "the row with 31")
        ask(first, "DROP DATABASE mvi_copy")


def main(t):
    with Cluster(t, sql_nodes=2) as cluster:
        load(cluster, SCHEMA)
        first = connect(cluster, 0, "mvi")
        under_failures(t, cluster)
        many(t, first)
        dumped(t, cluster, first)


if __name__ == "__main__":
    scenario_main(main)
