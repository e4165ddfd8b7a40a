"""Foreign keys on two SQL nodes: a key made through one holds on the other at once; clients insert rows and delete those that they refer to while data nodes are killed,
and no row is left that refers to nothing; a cascade of many rows; a dump loaded again; the tables of SQLAlchemy."""

import random
import threading
import time

import pymysql
import sqlalchemy
from sqlalchemy import orm

from lib.asking import ask, connect, refused
from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, run, scenario_main, wait_until
from lib.mariadb import dump, load

LIMIT_SECONDS = (300, 900)
SIDE_BY_SIDE = True
ROUNDS = 60 if FULL else 15
PARENTS = 6
CASCADED = 1_000_000 if FULL else 100_000
CHANGES = 3000 if FULL else 150

SCHEMA = """
CREATE DATABASE fk; USE fk;
CREATE TABLE parent (id INT PRIMARY KEY, code INT NOT NULL, UNIQUE KEY code (code));
CREATE TABLE stays (id BIGINT PRIMARY KEY, p INT NOT NULL, CONSTRAINT stays_p FOREIGN KEY (p) REFERENCES parent (id));
CREATE TABLE goes (id BIGINT PRIMARY KEY, p INT, CONSTRAINT goes_p FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE);
CREATE TABLE below (id BIGINT PRIMARY KEY, g BIGINT, CONSTRAINT below_g FOREIGN KEY (g) REFERENCES goes (id) ON DELETE CASCADE);
CREATE TABLE forgets (id BIGINT PRIMARY KEY, c INT, CONSTRAINT forgets_c FOREIGN KEY (c) REFERENCES parent (code) ON DELETE SET NULL ON UPDATE CASCADE);
"""
# Refused for what is there, given up for others, or the outcome of a commit that nobody can tell.
REFUSED = (1451, 1452, 1062)
GIVEN_UP = (1213, 1205, 1297)
UNKNOWN = 1180
ORPHANS = (
    "SELECT COUNT(*) FROM stays LEFT JOIN parent ON parent.id = stays.p WHERE parent.id IS NULL",
    "SELECT COUNT(*) FROM goes LEFT JOIN parent ON parent.id = goes.p WHERE goes.p IS NOT NULL AND parent.id IS NULL",
    "SELECT COUNT(*) FROM below LEFT JOIN goes ON goes.id = below.g WHERE below.g IS NOT NULL AND goes.id IS NULL",
    "SELECT COUNT(*) FROM forgets LEFT JOIN parent ON parent.code = forgets.c WHERE forgets.c IS NOT NULL AND parent.id IS NULL",
)


def at_once(t, first, second):
    with t.case("a key made through one SQL node is held by the other's next statement, and one that is dropped is forgotten"):
        ask(first, "CREATE TABLE fk.p (id INT PRIMARY KEY, n INT)")
        ask(first, "CREATE TABLE fk.c (id INT PRIMARY KEY, p INT)")
        for n in range(ROUNDS):
            ask(second, "INSERT INTO fk.p VALUES (1, 0), (2, 0)")
            ask(second, "INSERT INTO fk.c VALUES (1, 1), (2, 7)")
            refused(first, "ALTER TABLE fk.c ADD CONSTRAINT held FOREIGN KEY (p) REFERENCES fk.p (id)", 1452)
            ask(second, "DELETE FROM fk.c WHERE id = 2")
            ask(first, "ALTER TABLE fk.c ADD CONSTRAINT held FOREIGN KEY (p) REFERENCES fk.p (id)")
            if n % 2:
                refused(second, "DELETE FROM fk.p WHERE id = 1", 1451)
            refused(second, "INSERT INTO fk.c VALUES (2, 7)", 1452)
            refused(second, "DELETE FROM fk.p WHERE id = 1", 1451)
            ask(second, "DELETE FROM fk.p WHERE id = 2")
            ask(first, "ALTER TABLE fk.c DROP FOREIGN KEY held")
            wait_until(lambda: gone(second), 10, "the key that was dropped")
            ask(second, "DELETE FROM fk.c")
            ask(second, "DELETE FROM fk.p")
        ask(first, "DROP TABLE fk.c, fk.p")
    with t.case("transactions that began before a key was there are looked at by it"):
        ask(first, "CREATE TABLE fk.p (id INT PRIMARY KEY)")
        ask(first, "CREATE TABLE fk.c (id INT PRIMARY KEY, p INT)")
        ask(first, "INSERT INTO fk.p VALUES (1)")
        ask(second, "BEGIN")
        ask(second, "INSERT INTO fk.c VALUES (1, 9)")
        failed = []
        adder = threading.Thread(target=lambda: failed.append(outcome(first, "ALTER TABLE fk.c ADD CONSTRAINT held FOREIGN KEY (p) REFERENCES fk.p (id)")), daemon=True)
        adder.start()
        wait_until(lambda: outcome(second, "INSERT INTO fk.c VALUES (2, 9)") == 1452, 20, "the key is held")
        ask(second, "COMMIT")
        adder.join(60)
        check_equal(failed, [1452], "the row that was written before")
        ask(first, "DROP TABLE fk.c, fk.p")


def gone(connection):
    return outcome(connection, "INSERT INTO fk.c VALUES (3, 7)") is None


def outcome(connection, statement):
    try:
        ask(connection, statement)
    except pymysql.MySQLError as error:
        return error.args[0]
    return None


class Client(threading.Thread):
    """Rows of its own come and go; it knows which of those that nothing may take away are there."""

    def __init__(self, connection, number):
        super().__init__(daemon=True)
        self.connection, self.number, self.random = connection, number, random.Random(number)
        self.there, self.unsure = {}, set()
        self.next, self.done, self.counts = number << 32, 0, {}
        self.stopping, self.wrong = threading.Event(), None

    def run(self):
        try:
            while not self.stopping.is_set():
                self.one()
                self.done += 1
        except Exception as error:  # noqa: BLE001 - told by whoever joins
            self.wrong = error

    def tries(self, *statements):
        """What became of them, as one transaction if there are several."""
        try:
            if len(statements) > 1:
                ask(self.connection, "BEGIN")
            for statement in statements:
                ask(self.connection, statement)
            if len(statements) > 1:
                ask(self.connection, "COMMIT")
            found = None
        except pymysql.MySQLError as error:
            found = error.args[0]
            check(found in REFUSED + GIVEN_UP + (UNKNOWN,), f"{statements}: {error}")
            if len(statements) > 1:
                ask(self.connection, "ROLLBACK")
        self.counts[found] = self.counts.get(found, 0) + 1
        return found

    def one(self):
        kind, p = self.random.randrange(10), self.random.randrange(PARENTS)
        self.next += 1
        row = self.next
        if kind < 2:
            self.tries(f"INSERT IGNORE INTO parent VALUES ({p}, {p + 100})")
        elif kind < 4:
            self.tries(f"DELETE FROM parent WHERE id = {p}")
        elif kind == 4:
            self.insert(row, p, self.tries(f"INSERT INTO stays VALUES ({row}, {p})"))
        elif kind == 5:
            self.insert(row, p, self.tries(f"INSERT INTO goes VALUES ({row}, {p})", f"INSERT INTO below VALUES ({row}, {row})", f"INSERT INTO stays VALUES ({row}, {p})"))
        elif kind == 6:
            self.tries(f"INSERT INTO forgets VALUES ({row}, {self.random.choice((p + 100, p + 200))})")
        elif kind == 7 and self.there:
            row = self.random.choice(list(self.there))
            found = self.tries(f"DELETE FROM stays WHERE id = {row}")
            if found in (None, UNKNOWN):
                del self.there[row]
            if found == UNKNOWN:
                self.unsure.add(row)
        elif kind == 8:
            self.tries(f"UPDATE parent SET code = IF(code < 200, code + 100, code - 100) WHERE id = {p}")
        else:
            self.tries(f"INSERT INTO goes VALUES ({row}, {p}), ({row + (1 << 31)}, {(p + 1) % PARENTS})")

    def insert(self, row, p, found):
        if found is None:
            self.there[row] = p
        elif found == UNKNOWN:
            self.unsure.add(row)

    def goes_on(self):
        done = self.done
        wait_until(lambda: self.wrong or self.done > done + CHANGES, 60, f"client {self.number} goes on")
        check(self.wrong is None, f"client {self.number}: {self.wrong!r}")


def no_orphans(connection):
    for statement in ORPHANS:
        check_equal(ask(connection, statement), ((0,),), statement)


def under_failures(t, cluster):
    clients = [Client(connect(cluster, number % 2, "fk"), number + 1) for number in range(6)]
    reader = connect(cluster, 0, "fk")
    with t.case("no row refers to nothing, and none is lost, while clients insert and delete on two SQL nodes and data nodes are killed"):
        for client in clients:
            client.start()
        for node in (1, 2):
            for client in clients:
                client.goes_on()
            no_orphans(reader)
            cluster.kill(node)
            for client in clients:
                client.goes_on()
            no_orphans(reader)
            cluster.wait_down(node)
            cluster.restart(node)
            cluster.wait_up(node)
            for client in clients:
                client.goes_on()
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(60)
            check(not client.is_alive() and client.wrong is None, f"client {client.number}: {client.wrong!r}")
        no_orphans(reader)
        kept = dict(ask(reader, "SELECT id, p FROM stays"))
        for client in clients:
            for row, p in client.there.items():
                check(kept.pop(row, None) == p, f"row {row} of client {client.number} was acknowledged and is not there")
            for row in client.unsure:
                kept.pop(row, None)
        check_equal(kept, {}, "rows that nobody has inserted, or that were deleted")
        counts = {}
        for client in clients:
            for found, count in client.counts.items():
                counts[found] = counts.get(found, 0) + count
        check(all(counts.get(number, 0) for number in (None, 1451, 1452)), f"not all was tried: {counts}")
        t.say(f"{counts}")


def many(t, first):
    with t.case(f"one row takes {CASCADED} with it, and as many are changed, within the memory of a batch"):
        for table, action in (("gone", "CASCADE"), ("nulled", "SET NULL")):
            ask(first, f"CREATE TABLE fk.{table} (id INT AUTO_INCREMENT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES fk.parent (id) ON DELETE {action})")
        ask(first, "INSERT INTO fk.parent VALUES (1000, 5000)")
        for table in ("gone", "nulled"):
            ask(first, f"INSERT INTO fk.{table} (p) VALUES " + ", ".join(["(1000)"] * 1000))
            while ask(first, f"SELECT COUNT(*) FROM fk.{table}")[0][0] < CASCADED:
                ask(first, f"INSERT INTO fk.{table} (p) SELECT p FROM fk.{table} LIMIT {min(50_000, CASCADED)}")
        began = time.monotonic()
        with first.cursor() as cursor:
            check_equal(cursor.execute("DELETE FROM fk.parent WHERE id = 1000"), 1, "rows that the statement counts")
        check_equal(ask(first, "SELECT COUNT(*) FROM fk.gone"), ((0,),), "rows that went along")
        check_equal(ask(first, "SELECT COUNT(*) FROM fk.nulled WHERE p IS NOT NULL"), ((0,),), "rows that still refer")
        check(ask(first, "SELECT COUNT(*) FROM fk.nulled")[0][0] >= CASCADED, "rows that forgot")
        t.say(f"{time.monotonic() - began:.1f} s")
        ask(first, "DROP TABLE fk.gone, fk.nulled")


def dumped(t, cluster, first):
    with t.case("a dump is loaded again, and its keys are held"):
        text = dump(cluster, "fk")
        ask(first, "CREATE DATABASE fk_copy")
        load(cluster, text, database="fk_copy", seconds=120)
        for table in ("parent", "stays", "goes", "below", "forgets"):
            made = [ask(first, f"SHOW CREATE TABLE {database}.{table}") for database in ("fk", "fk_copy")]
            check_equal(made[1], made[0], f"definition of {table}")
            counts = [ask(first, f"SELECT COUNT(*) FROM {database}.{table}") for database in ("fk", "fk_copy")]
            check_equal(counts[1], counts[0], f"rows of {table}")
        refused(first, "INSERT INTO fk_copy.stays VALUES (-1, -1)", 1452)
        ask(first, "DROP DATABASE fk_copy")


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id = orm.mapped_column(sqlalchemy.Integer, primary_key=True)
    name = orm.mapped_column(sqlalchemy.String(40), unique=True)
    books = orm.relationship("Book", back_populates="author", passive_deletes=True)


class Book(Base):
    __tablename__ = "book"
    id = orm.mapped_column(sqlalchemy.Integer, primary_key=True)
    title = orm.mapped_column(sqlalchemy.String(80))
    author_id = orm.mapped_column(sqlalchemy.ForeignKey("author.id", ondelete="CASCADE"), nullable=False)
    sequel_to = orm.mapped_column(sqlalchemy.ForeignKey("book.id", name="book_sequel", ondelete="SET NULL"))
    author = orm.relationship(Author, back_populates="books")


def mapped(t, cluster):
    with t.case("SQLAlchemy makes its tables, finds their keys again, is told what is refused, and drops them"):
        host, port = cluster.sql
        ask(connect(cluster, 0), "CREATE DATABASE books")
        engine = sqlalchemy.create_engine(f"mysql+pymysql://root@{host}:{port}/books")
        Base.metadata.create_all(engine)
        keys = {tuple(key["constrained_columns"]): key for key in sqlalchemy.inspect(engine).get_foreign_keys("book")}
        check_equal(set(keys), {("author_id",), ("sequel_to",)}, "keys of book")
        check_equal(keys["author_id",]["referred_table"], "author", "what book refers to")
        check_equal(keys["author_id",]["options"], {"ondelete": "CASCADE"}, "what becomes of books")
        with orm.Session(engine) as session:
            author = Author(name="Swift", books=[Book(title="One"), Book(title="Two")])
            session.add(author)
            session.flush()
            author.books[1].sequel_to = author.books[0].id
            session.commit()
            session.delete(author.books[0])
            session.commit()
            check_equal([(b.title, b.sequel_to) for b in session.query(Book)], [("Two", None)], "the sequel")
            session.add(Book(title="Three", author_id=77))
            try:
                session.commit()
                check(False, "a book of nobody")
            except sqlalchemy.exc.IntegrityError as error:
                check_equal(error.orig.args[0], 1452, "a book of nobody")
                session.rollback()
            session.delete(session.query(Author).one())
            session.commit()
            check_equal(session.query(Book).count(), 0, "books of nobody")
        Base.metadata.drop_all(engine)
        engine.dispose()
        ask(connect(cluster, 0), "DROP DATABASE books")


def main(t):
    with Cluster(t, sql_nodes=2) as cluster:
        load(cluster, SCHEMA)
        first, second = connect(cluster, 0), connect(cluster, 1)
        at_once(t, first, second)
        under_failures(t, cluster)
        many(t, first)
        dumped(t, cluster, first)
        mapped(t, cluster)


if __name__ == "__main__":
    scenario_main(main)
