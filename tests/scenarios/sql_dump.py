"""Moving in and moving out with the stock tool: a MariaDB database is dumped and loaded into Apus, Apus' own dump into another
database of Apus and back into MariaDB. Every table must hold the same rows everywhere."""

from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, run, scenario_main, tail
from lib.mariadb import MariaDb, batch

LIMIT_SECONDS = (120, 600)
SIDE_BY_SIDE = True
ROWS = 100_000 if FULL else 3_000
TABLES = {"all_types": "id", "big": "id", "child": "grp, id", "filled": "a", "no_key": "a, b"}

SCHEMA = """
CREATE TABLE all_types (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, t1 TINYINT, t2 SMALLINT UNSIGNED, t3 MEDIUMINT, t4 BIGINT UNSIGNED,
  d DECIMAL(20,6) DEFAULT '1.500000', f FLOAT, g DOUBLE, c CHAR(10), v VARCHAR(200) NOT NULL DEFAULT 'it''s', b BINARY(4),
  vb VARBINARY(100), txt TEXT, bl BLOB, da DATE, dt DATETIME(6), ts TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP, ti TIME,
  UNIQUE KEY by_v (v), KEY by_two (t1, t2)) ENGINE=InnoDB COMMENT='every type; apus: durable=no';
INSERT INTO all_types VALUES
  (1, -128, 65535, -8388608, 18446744073709551615, -12345678901234.567891, 1.5, -2.25e100, 'padded', 'one', x'00FF0001',
   x'0027225C', 'line\\nbreak\\ttab \\\\ ''quote'' "double"', x'00010203FF1A', '2024-02-29', '1999-12-31 23:59:59.123456',
   '2001-02-03 04:05:06', '-838:59:59'),
  (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'überall ☃ 🐦', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (7, 0, 0, 0, 0, 0, 0, 0, '', '', x'00000000', '', '', '', '1000-01-01', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07', '00:00:00');
CREATE TABLE child (grp INT NOT NULL, id INT NOT NULL, note VARCHAR(20), PRIMARY KEY (grp, id));
INSERT INTO child VALUES (1, 1, 'a'), (1, 2, NULL), (2, 1, 'c');
CREATE TABLE filled (a INT(5) ZEROFILL PRIMARY KEY, b BIGINT ZEROFILL, d DECIMAL(6,2) ZEROFILL DEFAULT 1.5, f FLOAT(8,2) ZEROFILL, g DOUBLE ZEROFILL);
INSERT INTO filled VALUES (42, 7, 7.5, 2.5, 0.125), (1234567, 18446744073709551615, 9999.99, 0, NULL), (3, NULL, DEFAULT, NULL, 1);
CREATE TABLE no_key (a INT, b VARCHAR(10), KEY (b));
INSERT INTO no_key VALUES (1, 'x'), (2, 'y'), (3, NULL);
CREATE TABLE big (id INT PRIMARY KEY AUTO_INCREMENT, k INT NOT NULL, pad CHAR(60) NOT NULL, KEY (k));
"""

DOCUMENTS = r"""
CREATE TABLE documents (id INT PRIMARY KEY, j JSON, k JSON NOT NULL COMMENT 'never NULL');
INSERT INTO documents VALUES
  (1, NULL, 'null'), (2, '{"b": [1, 2.0, 1e100, -0.5, 18446744073709551615], "a": {"x": true, "": null}}', '[]'),
  (3, '"quotes \\" \\\\ and ''more'', a line\\nand \\u0001, überall ☃ 🐦"', '{}'),
  (4, JSON_OBJECT('when', TIMESTAMP'2024-02-29 01:02:03.4', 'list', JSON_ARRAY(1, 'a', NULL)), 'false');
"""


# Definitions with expressions, as only MySQL writes them.
EXPRESSIONS = r"""
CREATE TABLE computed (id INT PRIMARY KEY, a INT NOT NULL CHECK (a > 0), name VARCHAR(20) DEFAULT (CONCAT('n', id)), twice INT AS (a * 2) STORED, more INT AS (twice + 1) VIRTUAL UNIQUE,
  doc JSON DEFAULT (JSON_OBJECT('it''s', 1)), part VARCHAR(10) AS (doc->>'$.p'), hidden INT DEFAULT 7 INVISIBLE, KEY (part), KEY twice (twice) INVISIBLE,
  CONSTRAINT `odd ``name` CHECK (a < 1000 OR name LIKE 'x%'), CONSTRAINT idle CHECK (a <> 5) NOT ENFORCED);
INSERT INTO computed (id, a, doc) VALUES (1, 5, DEFAULT), (2, 7, '{"p": "q"}');
INSERT INTO computed (id, a, name, hidden) VALUES (3, 2000, 'xyz', 8);
"""


def address(server):
    return [f"-S{server.socket}"] if isinstance(server, MariaDb) else [f"-h{server.sql[0]}", f"-P{server.sql[1]}", "--protocol=TCP"]


def load(server, sql, database=None):
    where = {"unix": server.socket} if isinstance(server, MariaDb) else dict(zip(("host", "port"), server.sql))
    code, text = batch(sql, database=database, seconds=LIMIT_SECONDS[FULL] // 2, **where)
    check(code == 0 and "ERROR" not in text, f"loading ended with {code}:\n{tail(text)}")
    return text


def dump(server, database, *options):
    command = ["mariadb-dump", "--no-defaults", "-uroot", "--default-character-set=utf8mb4", "--hex-blob", *options, *address(server), database]
    code, text = run(command, seconds=LIMIT_SECONDS[FULL] // 2, ok=False)
    check(code == 0 and "Error" not in text, f"mariadb-dump ended with {code}:\n{tail(text)}")
    return text


def contents(server, database):
    rows = {}
    for table, order in TABLES.items():
        columns = "id, t1, t2, t3, t4, d, f, g, c, v, HEX(b), HEX(vb), txt, HEX(bl), da, dt, ts, ti" if table == "all_types" else "*"
        rows[table] = load(server, f"SET time_zone='+00:00'; SELECT {columns} FROM {table} ORDER BY {order}", database).splitlines()
    return rows


def same(found, wanted):
    for table, rows in wanted.items():
        check(len(rows) > 3, f"{table} has no rows to compare")
        check_equal(len(found[table]), len(rows), f"lines of {table}")
        for number, (ours, theirs) in enumerate(zip(found[table], rows)):
            check_equal(ours, theirs, f"{table}, line {number}")


def main(t):
    with Cluster(t) as apus, MariaDb(t.directory / "mariadb") as mariadb:
        load(mariadb, "CREATE DATABASE home CHARACTER SET utf8mb4; CREATE DATABASE back CHARACTER SET utf8mb4;")
        load(apus, "CREATE DATABASE home COLLATE utf8mb4_general_ci; CREATE DATABASE copy COLLATE utf8mb4_general_ci;")
        load(mariadb, SCHEMA, "home")
        values = ", ".join(f"({n % 97}, 'row {n} {'x' * (n % 40)}')" for n in range(ROWS))
        load(mariadb, f"SET GLOBAL max_allowed_packet = 1 << 30; INSERT INTO big (k, pad) VALUES {values};", "home")
        wanted = contents(mariadb, "home")
        with t.case("a dump of MariaDB is loaded into Apus"):
            load(apus, dump(mariadb, "home"), "home")
            same(contents(apus, "home"), wanted)
        with t.case("a dump of Apus is loaded into Apus"):
            load(apus, dump(apus, "home"), "copy")
            same(contents(apus, "copy"), wanted)
        with t.case("a dump of all tables under FLUSH TABLES WITH READ LOCK"):
            load(apus, "CREATE DATABASE locked;")
            load(apus, dump(apus, "home", "--lock-all-tables"), "locked")
            same(contents(apus, "locked"), wanted)
        with t.case("a dump of Apus is loaded into MariaDB"):
            load(mariadb, dump(apus, "copy"), "back")
            same(contents(mariadb, "back"), wanted)
        with t.case("after the move numbering goes on"):
            text = load(apus, "INSERT INTO all_types (v) VALUES ('next'); SELECT id FROM all_types WHERE v = 'next';", "copy")
            check_equal(text.split(), ["id", "8"], "the next AUTO_INCREMENT value")
        with t.case("documents go through a dump"):
            load(apus, "CREATE DATABASE written; CREATE DATABASE read_back;")
            load(apus, DOCUMENTS, "written")
            load(apus, dump(apus, "written"), "read_back")
            query = "SELECT id, j, k, JSON_DEPTH(j), JSON_TYPE(j->'$.b[1]'), JSON_LENGTH(j, '$.list') FROM documents ORDER BY id"
            rows = load(apus, query, "written").splitlines()
            check_equal(len(rows), 5, "lines of documents")
            check_equal(load(apus, query, "read_back").splitlines(), rows, "documents behind the dump")
        with t.case("a dump of expressions in definitions is loaded into Apus"):
            load(apus, "CREATE DATABASE made; CREATE DATABASE made_again;")
            load(apus, EXPRESSIONS, "made")
            # This tool writes values of generated columns, which MySQL's own leaves out.
            load(apus, dump(apus, "made", "--no-data"), "made_again")
            load(apus, "INSERT INTO computed (id, a, name, doc, hidden) SELECT id, a, name, doc, hidden FROM made.computed", "made_again")
            for query in ("SHOW CREATE TABLE computed", "SELECT *, hidden FROM computed ORDER BY id"):
                rows = load(apus, query, "made").splitlines()
                check(len(rows) > 1, f"{query} has no rows to compare")
                check_equal(load(apus, query, "made_again").splitlines(), rows, query)
            load(apus, "INSERT INTO computed (id, a) VALUES (4, 1)", "made_again")
            check_equal(load(apus, "SELECT twice, more, name FROM computed WHERE id = 4", "made_again").splitlines()[1:], ["2\t3\tn4"], "a new row")


if __name__ == "__main__":
    scenario_main(main)
