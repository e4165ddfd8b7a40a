"""Clients that do not speak UTF-8: what they write everybody reads, what others wrote they read, and bytes stay bytes.

What is wanted was asked of MySQL 9.7.4.
"""

import contextlib

import mysql.connector
import pymysql
from pymysql.constants import CLIENT

from lib import mysql as reference
from lib.cluster import Cluster
from lib.harness import check, check_equal, run, scenario_main
from lib.mariadb import CLIENT as MARIADB

LIMIT_SECONDS = (120, 120)
SIDE_BY_SIDE = True
ALL_BYTES = bytes(range(256))
TABLE = """CREATE TABLE {} (id INT PRIMARY KEY AUTO_INCREMENT, u VARCHAR(20), l VARCHAR(20) CHARACTER SET latin1, b VARBINARY(300), e ENUM('x', 'é'), j JSON,
           t TEXT, UNIQUE KEY (u))"""


class Raw:
    """A connection whose statements and answers are bytes."""

    def __init__(self, cluster, charset):
        host, port = cluster.sql
        self.connection = pymysql.connect(host=host, port=port, user="root", database="shop", charset=charset, autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS)

    def __call__(self, *statements):
        """The last rows that there are, and of their columns name, character set and length."""
        last = [], []
        for statement in statements:
            self.connection.encoding = "iso8859_1"  # in and out one byte is one character
            self.connection.query(statement)
            while True:
                result = self.connection._result
                if result.description:
                    rows = [[v.encode("iso8859_1") if isinstance(v, str) else v for v in row] for row in result.rows]
                    last = rows, [(f.name, f.charsetnr, f.length) for f in result.fields]
                if not result.has_next:
                    break
                self.connection.next_result()
        return last

    def refused(self, statement, number):
        try:
            self(statement)
        except pymysql.MySQLError as error:
            check_equal(error.args[0], number, statement)
            return error.args[1]
        return check(False, f"{statement} was not refused")


def speaks(t, cluster):
    utf8, latin1 = Raw(cluster, "utf8mb4"), Raw(cluster, "latin1")
    utf8(TABLE.format("words").encode().decode("iso8859_1"))
    with t.case("latin1: the session is in it, from the handshake on and by SET NAMES"):
        names = "SELECT @@character_set_client, @@character_set_connection, @@character_set_results, @@collation_connection"
        check_equal(latin1(names)[0], [[b"latin1"] * 3 + [b"latin1_swedish_ci"]], "of a client that connects so")
        check_equal(utf8("SET NAMES latin1", names)[0], [[b"latin1"] * 3 + [b"latin1_swedish_ci"]], "of SET NAMES")
        check_equal(utf8("SET CHARACTER SET latin1", names)[0], [[b"latin1", b"utf8mb4", b"latin1", b"utf8mb4_0900_ai_ci"]], "of SET CHARACTER SET")
        utf8("SET NAMES utf8mb4")
    with t.case("latin1: what it writes others read, and the other way round"):
        latin1("INSERT INTO words (u, l, e, j, t) VALUES ('caf\xe9', '\x80', '\xe9', '{\"k\xe9\": \"\xe9\"}', 'na\xefve')")
        wanted = ["café", "€", "é", '{"ké": "é"}', "naïve"]
        check_equal(utf8("SELECT u, l, e, j, t FROM words")[0], [[w.encode() for w in wanted]], "read in UTF-8")
        check_equal(latin1("SELECT u, l, e, j, t FROM words")[0], [[w.encode("cp1252") for w in wanted]], "read in latin1")
        utf8("INSERT INTO words (id, u) VALUES (2, '\u4e2d a\u0308 \U0001f600 \xfc')".encode().decode("iso8859_1"))
        check_equal(latin1("SELECT u FROM words WHERE id = 2")[0], [[b"? a? ? \xfc"]], "what latin1 has not")
    with t.case("latin1: names, headings and errors"):
        latin1("CREATE TABLE `t\xe9` (`c\xe9` INT)", "INSERT INTO `t\xe9` VALUES (1)")
        check_equal(latin1("SELECT `c\xe9` AS `\x80` FROM `t\xe9`"), ([[1]], [("\x80", 63, 11)]), "a heading")
        check_equal(utf8("SHOW TABLES LIKE 't_'".encode().decode("iso8859_1"))[0], [["té".encode()]], "a name")
        check("nix\ufffd" in latin1.refused("SELECT * FROM `nix\xe9`", 1146), "the name of what is not there, in latin1")
        latin1.connection.select_db("shop")
    with t.case("latin1: columns are told in it, and as long"):
        check_equal(latin1("SELECT u, l, b, e, t FROM words")[1], [("u", 8, 20), ("l", 8, 20), ("b", 63, 300), ("e", 8, 1), ("t", 8, 65535)], "columns")
    with t.case("latin1: literals are texts of it"):
        found = latin1("SELECT LENGTH('\xe9'), HEX('\xe9'), CHARSET('\xe9'), HEX(CONVERT('\x80' USING utf8mb4)), UPPER('\xe9'), u = 'CAF\xc9' FROM words WHERE id = 1")
        check_equal(found[0], [[1, b"E9", b"latin1", b"E282AC", b"\xc9", 1]], "what functions see")
        found = latin1("SELECT HEX(_binary'\xe9'), HEX(_latin1'\xe9'), HEX(_utf8mb4'\xc3\xa9'), HEX(x'e9')")
        check_equal(found[0], [[b"E9", b"E9", b"C3A9", b"E9"]], "bytes behind the name of a character set")
    with t.case("latin1: bytes stay bytes"):
        text = ALL_BYTES.replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\0", b"\\0").decode("iso8859_1")
        latin1(f"INSERT INTO words (id, b) VALUES (3, '{text}'), (4, _binary'{text}')")
        latin1("INSERT INTO words (id, l) VALUES (5, '\xe9\x80')", "UPDATE words SET b = l WHERE id = 5", "INSERT INTO words (id, b) SELECT 6, l FROM words WHERE id = 5")
        check_equal(latin1("SELECT b FROM words WHERE id IN (3, 4) ORDER BY id")[0], [[ALL_BYTES]] * 2, "all bytes in a column of bytes")
        check_equal(latin1("SELECT b FROM words WHERE id > 4 ORDER BY id")[0], [[b"\xe9\x80"]] * 2, "a text of latin1 in a column of bytes")
        latin1(f"INSERT INTO words (id, t) VALUES (7, '{text}')")
        check_equal(latin1("SELECT t FROM words WHERE id = 7")[0], [[ALL_BYTES]], "all bytes in a column of texts")
    with t.case("latin1: a text beside bytes is bytes"):
        latin1("CREATE TABLE k (b VARBINARY(10) PRIMARY KEY, n INT)", "INSERT INTO k VALUES ('\xe9', 1), ('\xc3\xa9', 2)")
        for condition, found in (("b = '\xe9'", [1]), ("b IN ('\xe9', 'x')", [1]), ("b BETWEEN '\xe0' AND '\xf0'", [1]), ("b LIKE '\xc3%'", [2]), ("CASE b WHEN '\xe9' THEN 1 END", [1]),
                                 ("CONCAT(b, '\xe9') = x'e9e9'", [1]), ("IF(n = 1, b, '\xe9') = x'e9'", [1, 2]), ("b = (SELECT l FROM words WHERE id = 8)", [1]),
                                 ("b IN (SELECT l FROM words)", [1])):
            latin1("REPLACE INTO words (id, l) VALUES (8, '\xe9')")
            check_equal(latin1(f"SELECT n FROM k WHERE {condition} ORDER BY n")[0], [[n] for n in found], condition)
        check_equal(latin1("SELECT n FROM k JOIN words ON k.b = words.l")[0], [[1]], "a join")
        latin1("UPDATE k JOIN words ON words.id = 8 SET k.b = CONCAT(l, '\xe8') WHERE n = 1", "DELETE FROM k WHERE b = '\xc3\xa9'")
        check_equal(latin1("SELECT HEX(b), n FROM k")[0], [[b"E9E8", 1]], "changed by a join, and deleted")
        latin1("CREATE TABLE made (b VARBINARY(10)) SELECT l AS b FROM words WHERE id = 8", "CREATE TABLE altered SELECT l FROM words WHERE id = 8", "ALTER TABLE altered MODIFY l VARBINARY(10)")
        check_equal(latin1("SELECT HEX(b), HEX(l) FROM made, altered")[0], [[b"E9", b"E9"]], "made of a SELECT, and altered")
        latin1("DELETE FROM words WHERE id = 8")
    with t.case("SET NAMES within several statements counts for the next one"):
        found = latin1("SET NAMES utf8mb4; SELECT '\xc3\xa9', HEX('\xc3\xa9')")
        check_equal(found[0], [["é".encode(), b"C3A9"]], "the statement behind it")
        check_equal(latin1("SET NAMES latin1; SELECT '\xe9', HEX('\xe9')")[0], [[b"\xe9", b"E9"]], "and back")
    with t.case("results alone are in another character set"):
        check_equal(latin1("SET character_set_results = utf8mb4", "SELECT u, '\xe9' FROM words WHERE id = 1")[0], [["café".encode(), "é".encode()]], "results")
        check_equal(latin1("SET NAMES utf8mb3", "SELECT u FROM words WHERE id = 2")[0], [["\u4e2d a\u0308 ? \xfc".encode()]], "utf8mb3 has no character of four bytes")
        latin1("SET NAMES latin1")
    with t.case("definitions keep what was written"):
        latin1("CREATE PROCEDURE p() SELECT '\xe9' AS `\xe9`", "CREATE VIEW v AS SELECT '\xe9' AS `\xe9`, u FROM words WHERE id = 1")
        check_equal(latin1("CALL p()")[0], [[b"\xe9"]], "a procedure in latin1")
        check_equal(utf8("CALL p()")[0], [["é".encode()]], "and in UTF-8")
        check_equal(utf8("SELECT * FROM v")[0], [["é".encode(), "café".encode()]], "a view in UTF-8")
        latin1("CREATE PROCEDURE own() SELECT HEX(_latin1'\xe9'), HEX(_binary'\xe9'), HEX('\xe9'), @@character_set_client")
        utf8("CREATE PROCEDURE others() SELECT HEX(_latin1'\xc3\xa9'), HEX(_binary'\xc3\xa9'), HEX('\xc3\xa9'), @@character_set_client")
        latin1("CREATE VIEW own_view AS SELECT HEX(_latin1'\xe9'), HEX(_binary'\xe9'), HEX('\xe9')")
        utf8("CREATE VIEW others_view AS SELECT HEX(_latin1'\xc3\xa9'), HEX(_binary'\xc3\xa9'), HEX('\xc3\xa9')")
        latin1("CREATE TABLE rows_of (b VARBINARY(10))", "CREATE TRIGGER before_rows BEFORE INSERT ON rows_of FOR EACH ROW SET NEW.b = CONCAT(NEW.b, _latin1'\xe9')")
        for client in (latin1, utf8):
            check_equal(client("CALL own()")[0], [[b"E9", b"E9", b"E9", b"latin1"]], "a procedure of latin1")
            check_equal(client("CALL others()")[0], [[b"C3A9", b"C3A9", b"C3A9", b"utf8mb4"]], "a procedure of UTF-8")
            check_equal(client("SELECT * FROM own_view")[0], [[b"E9", b"E9", b"E9"]], "a view of latin1")
            check_equal(client("SELECT * FROM others_view")[0], [[b"C3A9", b"C3A9", b"C3A9"]], "a view of UTF-8")
            client("INSERT INTO rows_of VALUES ('x')")
        check_equal(latin1("SELECT HEX(b) FROM rows_of")[0], [[b"78E9"]] * 2, "a trigger of latin1")
        names = "SELECT @@character_set_client, @@collation_connection"
        check_equal(latin1(names)[0], [[b"latin1", b"latin1_swedish_ci"]], "the session is as it was")
    with t.case("a prepared statement takes its values in what is spoken when it is executed"):
        utf8("CREATE TABLE given (b VARBINARY(10))", "PREPARE s FROM 'INSERT INTO given VALUES (?)'", "SET @v = '\xc3\xa9'", "EXECUTE s USING @v")
        utf8("SET NAMES latin1", "SET @v = '\xe9'", "EXECUTE s USING @v", "SET NAMES utf8mb4")
        check_equal(utf8("SELECT HEX(b) FROM given")[0], [[b"C3A9"], [b"E9"]], "bytes")
    with t.case("latin1: thousands of statements in one text"):
        latin1("CREATE TABLE many (id INT PRIMARY KEY AUTO_INCREMENT, u VARCHAR(5))")
        latin1("; ".join(f"INSERT INTO many (u) VALUES ('\xe9{n % 10}')" for n in range(2000)))
        check_equal(latin1("SELECT COUNT(*), SUM(LENGTH(u)), MIN(u) FROM many")[0], [[2000, 6000, b"\xe90"]], "rows")
    with t.case("ascii: other characters are refused, and read as question marks"):
        ascii_ = Raw(cluster, "ascii")
        check_equal(ascii_("SELECT u FROM words WHERE id = 1")[0], [[b"caf?"]], "é")
        check("'E9'" in ascii_.refused("SELECT 'caf\xe9'", 1300), "the byte is named")
    for one in (utf8, latin1, ascii_):
        one.connection.close()


def prepared(t, cluster):
    host, port = cluster.sql
    with t.case("Connector/Python: values of prepared statements"):
        with contextlib.closing(mysql.connector.connect(host=host, port=port, user="root", database="shop", charset="latin1", use_pure=True)) as connection:
            cursor = connection.cursor(prepared=True)
            cursor.execute("INSERT INTO words (id, u, b) VALUES (%s, %s, %s)", (20, "Zoë ÿ", "ë".encode()))
            cursor.execute("SELECT u, b FROM words WHERE u = %s", ("zoë ÿ",))
            row = cursor.fetchone()
            check_equal([v.decode("cp1252") if isinstance(v, (bytes, bytearray)) and i == 0 else bytes(v) if i else v for i, v in enumerate(row)], ["Zoë ÿ", "ë".encode()], "read again")
            connection.commit()
        check_equal(Raw(cluster, "utf8mb4")("SELECT u, b FROM words WHERE id = 20")[0], [["Zoë ÿ".encode(), "ë".encode()]], "in UTF-8")


def consoles(t, cluster):
    host, port = cluster.sql
    where = [f"-h{host}", f"-P{port}", "--protocol=TCP", "-uroot"]

    def dumped_and_loaded(dump, client):
        read = "SELECT * FROM words ORDER BY id"
        before = Raw(cluster, "utf8mb4")(read)
        file = t.directory / "latin1.sql"
        run([*dump, "--default-character-set=latin1", *where, f"--result-file={file}", "shop", "words"])
        check(b"caf\xe9" in file.read_bytes(), "the dump is in latin1")
        run(["sh", "-c", 'exec "$@" < ' + str(file), "sh", *client, "--default-character-set=latin1", *where, "shop"])
        check_equal(Raw(cluster, "utf8mb4")(read), before, "rows")

    with t.case("mariadb-dump and mariadb in latin1"):
        # What is not in latin1 does not come back.
        Raw(cluster, "utf8mb4")("DELETE FROM words WHERE id = 2")
        dumped_and_loaded(["mariadb-dump", "--no-defaults"], [MARIADB, "--no-defaults"])
    problem = reference.get(reference.FOLDER)
    if problem:
        t.say(f"MySQL's own programs are not run: {problem}")
        return
    with t.case("mysqldump and mysql in latin1"):
        dumped_and_loaded([*reference.program("bin/mysqldump"), "--no-defaults", "--column-statistics=0"], [*reference.program("bin/mysql"), "--no-defaults"])


def main(t):
    with Cluster(t, data_nodes=2) as cluster:
        host, port = cluster.sql
        with contextlib.closing(pymysql.connect(host=host, port=port, user="root")) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE shop")
        speaks(t, cluster)
        prepared(t, cluster)
        consoles(t, cluster)


if __name__ == "__main__":
    scenario_main(main)
