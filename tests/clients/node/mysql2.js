// mysql2 by itself: both protocols, pools, streams, files, big integers, JSON and dates.
"use strict";
const { Readable } = require("node:stream");
const mysql = require("mysql2/promise");
const { same, refused, write, start } = require("./common");

const TABLES = `
CREATE TABLE books (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  title VARCHAR(100) NOT NULL,
  price DECIMAL(12,2) NOT NULL DEFAULT 0,
  stock INT NOT NULL DEFAULT 0,
  sold BIGINT UNSIGNED NOT NULL DEFAULT 0,
  owed BIGINT NOT NULL DEFAULT 0,
  extra JSON,
  cover LONGBLOB,
  added DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6),
  changed TIMESTAMP(3) NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP(3),
  printed DATE, took TIME(6), year YEAR, kind ENUM('paper','sound') DEFAULT 'paper', marks SET('a','b','c'),
  weight FLOAT, height DOUBLE, ok TINYINT(1) NOT NULL DEFAULT 1,
  UNIQUE KEY title (title), KEY price (price),
  CONSTRAINT stock_there CHECK (stock >= 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE TABLE events (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, number INT NOT NULL, book BIGINT UNSIGNED NOT NULL,
  CONSTRAINT events_book FOREIGN KEY (book) REFERENCES books (id)
);`;

async function types(db) {
  const values = {
    title: "Ærøskøbing ✈ it's \\ \"q\" \0", price: "1234567890.12", sold: "18446744073709551615", owed: "-9223372036854775808", extra: JSON.stringify({ langs: ["da", "en"], n: 1.5, deep: { no: null } }),
    cover: Buffer.from([0, 1, 2, 250, 255, 39, 92]), added: new Date("2024-02-29T23:59:58.123Z"), printed: "1000-01-01", took: "-838:59:58.000001", year: 2155, kind: "sound", marks: "a,c", weight: 0.1, height: 1e-300,
  };
  const [{ insertId, affectedRows }] = await db.query("INSERT INTO books SET ?", values);
  same(affectedRows, 1, "rows inserted");
  const columns = "title, price, sold, owed, extra, cover, added, changed, printed, took, year, kind, marks, weight, height, ok";
  const wanted = { ...values, sold: "18446744073709551615", owed: "-9223372036854775808", extra: { langs: ["da", "en"], n: 1.5, deep: { no: null } }, changed: null, printed: new Date("1000-01-01T00:00:00Z"), ok: 1 };
  const [[text]] = await db.query(`SELECT ${columns} FROM books WHERE id = ?`, [insertId]);
  same({ ...text }, wanted, "by text");
  const [[binary]] = await db.execute(`SELECT ${columns} FROM books WHERE id = ?`, [insertId]);
  same({ ...binary, weight: Number(binary.weight.toPrecision(6)) }, wanted, "by a prepared statement");
  await db.execute("UPDATE books SET extra = ?, added = ?, sold = ?, cover = ? WHERE id = ?", [{ a: [1, { b: "ü" }] }, new Date("1999-12-31T23:59:59.999Z"), 9007199254740993n, Buffer.alloc(300_000, 7), insertId]);
  const [[after]] = await db.execute("SELECT extra, extra->>'$.a[1].b' AS b, added, sold, LENGTH(cover) AS n, changed IS NOT NULL AS touched FROM books WHERE id = ?", [insertId]);
  same({ ...after }, { extra: { a: [1, { b: "ü" }] }, b: "ü", added: new Date("1999-12-31T23:59:59.999Z"), sold: "9007199254740993", n: 300_000, touched: 1 }, "after an update");
  const [rows] = await db.query({ sql: "SELECT 1 AS a, 'x' AS a, b.id FROM books b WHERE id = ?", rowsAsArray: true, values: [insertId] });
  same(rows, [[1, "x", insertId]], "rows as arrays");
  const [nested] = await db.query({ sql: "SELECT b.id, e.id FROM books b LEFT JOIN events e ON e.book = b.id WHERE b.id = ?", nestTables: true, values: [insertId] });
  same(JSON.parse(JSON.stringify(nested)), [{ b: { id: insertId }, e: { id: null } }], "rows by table");
  const [named] = await db.execute({ sql: "SELECT title FROM books WHERE id = :id AND ok = :ok", namedPlaceholders: true }, { id: insertId, ok: true });
  same(named.length, 1, "named placeholders");
  const [, fields] = await db.query("SELECT id, title, price, extra FROM books LIMIT 0");
  same(fields.map((f) => [f.name, f.orgTable, f.type]), [["id", "books", 8], ["title", "books", 253], ["price", "books", 246], ["extra", "books", 245]], "columns");
}

async function many(db, pool) {
  const rows = Array.from({ length: 5000 }, (_, n) => [`Book ${n}`, n % 20, n % 7]);
  const [{ affectedRows, info }] = await db.query("INSERT INTO books (title, price, stock) VALUES ?", [rows]);
  same([affectedRows, info], [5000, "Records: 5000  Duplicates: 0  Warnings: 0"], "many rows in one statement");
  let [count, sum] = [0, 0];
  for await (const row of db.connection.query("SELECT id, stock FROM books WHERE title LIKE 'Book %' ORDER BY id").stream({ highWaterMark: 50 })) {
    count += 1;
    sum += row.stock;
  }
  same([count, sum], [5000, rows.reduce((a, row) => a + row[2], 0)], "a stream");
  const answers = await Promise.all(Array.from({ length: 200 }, (_, n) => pool.execute("SELECT id, ? AS n FROM books WHERE title = ?", [n, `Book ${n}`])));
  same(answers.every(([[row]], n) => Number(row.n) === n), true, "200 statements of a pool of 5");
  const statement = await db.prepare("SELECT COUNT(*) AS n FROM books WHERE price BETWEEN ? AND ? AND title LIKE ?");
  for (const [low, wanted] of [[0, 750], [18, 500]]) same((await statement.execute([low, low + 2, "Book %"]))[0][0].n, wanted, "a statement prepared once");
  await statement.close();
  const [page] = await db.execute("SELECT title FROM books WHERE price = ? ORDER BY id LIMIT ? OFFSET ?", [3, "10", "20"]);
  same([page.length, page[0].title], [10, "Book 403"], "a page");
  const [inside] = await db.query("SELECT COUNT(*) AS n FROM books WHERE title IN (?) AND ?? > ?", [["Book 1", "Book 2", "nothing"], "books.id", 0]);
  same(inside[0].n, 2, "a list");
  const [several] = await db.query("SELECT 1 AS a; UPDATE books SET price = price WHERE id = 0; SELECT 2 AS b, 3 AS c");
  same([several[0][0].a, several[1].affectedRows, several[2][0].c], [1, 0, 3], "several statements");
  await db.query("SET GLOBAL local_infile = ON");
  const [loaded] = await db.query({ sql: "LOAD DATA LOCAL INFILE 'stream' INTO TABLE books FIELDS TERMINATED BY ',' (title, price)", infileStreamFactory: () => Readable.from(["from a file,1.5\n", "and anoth", "er,2\n"].map((part) => Buffer.from(part))) });
  same(loaded.affectedRows, 2, "rows of a file");
}

async function errors(db, pool) {
  const taken = await refused(() => db.execute("INSERT INTO books (title) VALUES (?)", ["Book 1"]), "a second title");
  same([taken.code, taken.errno, taken.sqlState, taken.sqlMessage], ["ER_DUP_ENTRY", 1062, "23000", "Duplicate entry 'Book 1' for key 'books.title'"], "1062");
  const nobody = await refused(() => db.query("INSERT INTO events (number, book) VALUES (1, 999999)"), "an event of no book");
  same([nobody.code, nobody.sqlState], ["ER_NO_REFERENCED_ROW_2", "23000"], "1452");
  const negative = await refused(() => db.execute("UPDATE books SET stock = -1 WHERE title = 'Book 1'"), "a negative stock");
  same([negative.code, negative.sqlMessage], ["ER_CHECK_CONSTRAINT_VIOLATED", "Check constraint 'stock_there' is violated."], "3819");
  for (const [sql, code] of [["SELEKT 1", "ER_PARSE_ERROR"], ["SELECT * FROM nowhere", "ER_NO_SUCH_TABLE"], ["SELECT nothing FROM books", "ER_BAD_FIELD_ERROR"], ["INSERT INTO books (title) VALUES (NULL)", "ER_BAD_NULL_ERROR"],
    ["INSERT INTO books (title, stock) VALUES ('t', 'x')", "ER_TRUNCATED_WRONG_VALUE_FOR_FIELD"], ["INSERT INTO books (title, printed) VALUES ('t', '2024-02-30')", "ER_TRUNCATED_WRONG_VALUE"]]) {
    for (const way of ["query", "execute"]) same((await refused(() => db[way](sql), sql)).code, code, `${way} ${sql}`);
  }
  const one = await pool.getConnection();
  await one.beginTransaction();
  await one.query("INSERT INTO books (title) VALUES ('goes')");
  await one.query("SAVEPOINT s");
  await refused(() => one.query("INSERT INTO books (title) VALUES ('goes')"), "a second title");
  await one.query("ROLLBACK TO SAVEPOINT s");
  same((await one.query("SELECT COUNT(*) AS n FROM books WHERE title = 'goes'"))[0][0].n, 1, "inside the transaction");
  same((await db.query("SELECT COUNT(*) AS n FROM books WHERE title = 'goes'"))[0][0].n, 0, "outside of it");
  await one.rollback();
  one.release();
  same((await db.query("SELECT COUNT(*) AS n FROM books WHERE title = 'goes'"))[0][0].n, 0, "after the rollback");
  await db.query("SET @mine = 1");
  await db.changeUser({ database: "information_schema" });
  same((await db.query("SELECT @mine AS m, DATABASE() AS d"))[0][0].m, null, "a variable of the session before");
}

const make = async ({ port, database }) => {
  const options = { host: "127.0.0.1", port, user: "root", database, timezone: "Z", charset: "utf8mb4", supportBigNumbers: true, multipleStatements: true, flags: ["+LOCAL_FILES"] };
  const db = await mysql.createConnection(options);
  const pool = mysql.createPool({ ...options, connectionLimit: 5 });
  await db.query("SET time_zone = '+00:00'");
  const [[{ t }]] = await db.query("SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW()) AS t");
  same(t, 0, "the zone of the session");
  return {
    async migrate() {
      await db.query(TABLES);
    },
    async work() {
      await types(db);
      await many(db, pool);
      await errors(db, pool);
    },
    async load() {
      await db.query(`USE ${database}`);
      await db.query("UPDATE books SET stock = 0");
      const one = (number) => sell(pool, 1 + (number % 50), number);
      return write(one);
    },
    async close() {
      await db.end();
      await pool.end();
    },
  };
};

async function sell(pool, book, number) {
  const connection = await pool.getConnection();
  try {
    await connection.beginTransaction();
    const [[found]] = await connection.execute("SELECT id, stock FROM books WHERE title = ? FOR UPDATE", [`Book ${book}`]);
    await connection.execute("UPDATE books SET stock = ? WHERE id = ?", [found.stock + 1, found.id]);
    await connection.execute("INSERT INTO events (number, book) VALUES (?, ?)", [number, found.id]);
    await connection.commit();
  } catch (error) {
    await connection.rollback();
    throw error;
  } finally {
    connection.release();
  }
}

start(make);
