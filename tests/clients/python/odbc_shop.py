"""pyodbc over Debian's ODBC driver of MariaDB: catalogue calls, both ways of executing many, types, cursors, errors by SQLSTATE, transactions.

Texts are short and seconds whole: the driver garbles what it sends in pieces (longer than 127 characters) and drops fractions, with MySQL as well.
"""

import datetime
import decimal
import os

import pyodbc
from common import main, same, write

BORN = datetime.datetime(1970, 2, 28, 1, 2, 3)
TABLES = """
CREATE TABLE authors (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(60) NOT NULL UNIQUE, born DATETIME(3), day DATE, hour TIME);
CREATE TABLE books (
    id BIGINT AUTO_INCREMENT PRIMARY KEY, title VARCHAR(100) NOT NULL, author_id BIGINT UNSIGNED, price DECIMAL(10,2) DEFAULT 1.5, stock INT NOT NULL DEFAULT 0 CHECK (stock >= 0), text LONGTEXT, cover LONGBLOB,
    weight DOUBLE, ok BOOLEAN DEFAULT TRUE, UNIQUE KEY title_of_author (author_id, title), CONSTRAINT of_author FOREIGN KEY (author_id) REFERENCES authors (id) ON DELETE CASCADE);
CREATE TABLE events (id INT AUTO_INCREMENT PRIMARY KEY, number INT, book_id BIGINT, FOREIGN KEY (book_id) REFERENCES books (id))
"""


def connect(port, database):
    where = f"DRIVER={os.environ['APUS_ODBC_DRIVER']};SERVER=127.0.0.1;PORT={port};USER=root;DATABASE={database};CHARSET=utf8mb4"
    return pyodbc.connect(where)


def refused(cursor, sqlstate, number, statement, *values):
    try:
        cursor.execute(statement, *values)
    except pyodbc.Error as error:
        same((error.args[0], f"({number})" in error.args[1]), (sqlstate, True), error.args[1])
    else:
        raise AssertionError(f"{statement} was not refused")


def migrate(port, database):
    cursor = connect(port, database).cursor()
    for statement in TABLES.split(";\n"):
        cursor.execute(statement)
    same([t.table_name for t in cursor.tables(catalog=database)], ["authors", "books", "events"], "tables")
    columns = {c.column_name: (c.type_name, c.column_size, c.decimal_digits, c.column_def) for c in cursor.columns(table="books", catalog=database)}
    same([columns["title"], columns["price"]], [("VARCHAR", 100, None, None), ("DECIMAL", 10, 2, "1.50")], "columns")
    keys = [(k.pktable_name, k.pkcolumn_name, k.fktable_name, k.fkcolumn_name) for k in cursor.foreignKeys(foreignTable="books", foreignCatalog=database)]
    same(keys, [("authors", "id", "books", "author_id")], "foreign keys")
    same(sorted({(i.index_name, i.non_unique) for i in cursor.statistics("books", catalog=database)}), [("PRIMARY", 0), ("title_of_author", 0)], "indexes")
    cursor.execute("ALTER TABLE books ADD COLUMN kind ENUM('paper', 'sound') DEFAULT 'paper', ADD KEY price (price)")


def fill(db):
    cursor = db.cursor()
    for fast in (False, True):
        cursor.fast_executemany = fast
        names = [(f"Author {n + 10 * fast}",) for n in range(10)]
        cursor.executemany("INSERT INTO authors (name) VALUES (?)", names)
    ids = [row.id for row in cursor.execute("SELECT id FROM authors ORDER BY id")]
    cursor.executemany("INSERT INTO books (title, author_id, price) VALUES (?, ?, ?)", [(f"Book {b}", a, decimal.Decimal(b % 20)) for a in ids for b in range(25)])
    cursor.fast_executemany = False
    cursor.execute("INSERT INTO authors (name, born, day, hour) VALUES (?, ?, ?, ?)", "Ærøskøbing ✈", BORN, BORN.date(), datetime.time(1, 2, 3))
    author = cursor.execute("SELECT LAST_INSERT_ID()").fetchval()
    book = ("One", author, decimal.Decimal("12.50"), "long ü " * 10, bytes(range(256)), 0.1, False, "sound")
    cursor.execute("INSERT INTO books (title, author_id, price, text, cover, weight, ok, kind) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *book)
    db.commit()
    found = cursor.execute("SELECT title, author_id, price, text, cover, weight, ok, kind FROM books WHERE title = ?", "One").fetchone()
    same(tuple(found), (*book[:6], 0, "sound"), "a book")
    found = cursor.execute("SELECT name, born, day, hour FROM authors WHERE id = ?", author).fetchone()
    same(tuple(found), ("Ærøskøbing ✈", BORN, BORN.date(), datetime.time(1, 2, 3)), "an author")


def read(db):
    cursor = db.cursor()
    query = """SELECT b.id, price, a.name, COUNT(*) OVER () FROM books b LEFT JOIN authors a ON a.id = b.author_id
               WHERE price BETWEEN ? AND ? AND a.name LIKE ? ORDER BY price DESC, b.id LIMIT ? OFFSET ?"""
    page = cursor.execute(query, 3, 7, "Author 1%", 10, 10).fetchall()
    same((len(page), page[0][1], page[0][3]), (10, decimal.Decimal("7.00"), 77), "a page")
    totals = cursor.execute("SELECT kind, COUNT(*), SUM(price) FROM books GROUP BY kind ORDER BY kind").fetchall()
    same([tuple(t) for t in totals], [("paper", 500, decimal.Decimal("4000.00")), ("sound", 1, decimal.Decimal("12.50"))], "totals")
    cursor.execute("SELECT a.id, b.id FROM books a JOIN books b ON b.author_id = a.author_id")
    same([d[1] for d in cursor.description], [int, int], "types")
    same(len(cursor.fetchmany(100)) + sum(1 for _ in cursor), 20 * 25 * 25 + 1, "many rows")
    same(tuple(cursor.execute("SELECT ?, ? + 1, ?", None, 41, True).fetchone()), (None, 42, 1), "parameters")


def change(db):
    cursor = db.cursor()
    same(cursor.execute("UPDATE books SET stock = stock + ? WHERE title = ?", 2, "Book 1").rowcount, 20, "rows changed")
    refused(cursor, "23000", 1062, "INSERT INTO authors (name) VALUES (?)", "Author 1")
    refused(cursor, "23000", 1452, "INSERT INTO books (title, author_id) VALUES ('Nobody''s', ?)", 999_999)
    refused(cursor, "HY000", 3819, "UPDATE books SET stock = -1 WHERE title = ?", "One")
    refused(cursor, "22001", 1406, "INSERT INTO authors (name) VALUES (?)", "x" * 100)
    refused(cursor, "42S02", 1146, "SELECT * FROM nothing")
    refused(cursor, "42000", 1064, "SELEC 1")
    db.rollback()
    same(cursor.execute("SELECT SUM(stock) FROM books").fetchval(), 0, "what is left")
    same(cursor.execute("DELETE FROM authors WHERE name = ?", "Ærøskøbing ✈").rowcount, 1, "an author")
    same(cursor.execute("SELECT COUNT(*) FROM books").fetchval(), 500, "books that are left")
    db.commit()


def work(port, database):
    db = connect(port, database)
    fill(db)
    read(db)
    change(db)


class Deadlock(Exception):
    """ODBC tells the SQLSTATE of 1213."""


def load(port, database):
    db = connect(port, database)
    cursor = db.cursor()
    cursor.execute("UPDATE books SET stock = 0")
    ids = [row.id for row in cursor.execute("SELECT id FROM books ORDER BY id LIMIT 50")]
    db.commit()

    def one(number):
        book = ids[number % len(ids)]
        try:
            stock = cursor.execute("SELECT stock FROM books WHERE id = ? FOR UPDATE", book).fetchval()
            cursor.execute("UPDATE books SET stock = ? WHERE id = ?", stock + 1, book)
            cursor.execute("INSERT INTO events (number, book_id) VALUES (?, ?)", number, book)
            db.commit()
        except pyodbc.Error as error:
            if error.args[0] != "40001":
                raise
            db.rollback()
            raise Deadlock(1213) from error

    write(one, Deadlock)


if __name__ == "__main__":
    main({"migrate": migrate, "work": work, "load": load})
