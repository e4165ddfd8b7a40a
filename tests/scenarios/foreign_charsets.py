"""Clients that speak MySQL's other character sets: bytes in and out are those of MySQL, which is asked the same.

What is known to differ (docs/sql.md) is not asked here: what functions make of literals, how long columns are told to be that functions make.
"""

import contextlib
import pathlib

import mysql.connector
import pymysql
from pymysql.constants import CLIENT

from lib import mysql as reference
from lib.cluster import Cluster
from lib.harness import check, check_equal, run, scenario_main
from lib.mariadb import CLIENT as MARIADB

LIMIT_SECONDS = (180, 180)
SIDE_BY_SIDE = True
# Of each character set a text; where there are some, with a second byte that is a backslash, or a quote of names.
TEXTS = {
    "gbk": "中文 誠誤 \u20ac", "gb2312": "中文", "gb18030": "中文 誠 \U0001f600 ₨", "big5": "許功蓋 中文", "sjis": "表示 ソ能 ｱ", "cp932": "表示 ソ ①", "ujis": "表示 丂", "eucjpms": "表示 ①",
    "euckr": "한국어 똠", "cp1250": "Škoda ž", "cp1251": "Жук ё", "cp1256": "سلام", "cp1257": "Žąsis", "koi8r": "Жук", "koi8u": "Їжак", "greek": "Γειά", "hebrew": "שלום", "latin2": "Łódź",
    "latin5": "İstanbul ş", "latin7": "Žąsis", "cp866": "Жук", "macroman": "café Œ", "tis620": "สวัสดี",
}
# Apus tells utf8mb4 by the number of its general_ci, whatever it is.
UTF8MB4 = {255: 45}
TABLE = "CREATE TABLE words (id INT PRIMARY KEY, t VARCHAR(40) CHARACTER SET utf8mb4, l TEXT CHARACTER SET utf8mb4, b VARBINARY(300), e ENUM('x', 'y') CHARACTER SET utf8mb4)"


class Raw:
    """A connection whose statements and answers are bytes."""

    def __init__(self, where, charset):
        self.connection = pymysql.connect(**where, user="root", database="shop", autocommit=True, charset="utf8mb4", client_flag=CLIENT.MULTI_STATEMENTS)
        self.connection.query(f"SET NAMES {charset}")
        self.connection.encoding = "iso8859_1"  # in and out one byte is one character

    def __call__(self, statement):
        """Rows and columns (name, character set, length of column t) of all answers, or the error."""
        answers = []
        try:
            self.connection.query(statement.decode("iso8859_1"))
            while True:
                result = self.connection._result
                if result.description:
                    rows = [[v.encode("iso8859_1") if isinstance(v, str) else v for v in row] for row in result.rows]
                    answers.append((rows, [(f.name, UTF8MB4.get(f.charsetnr, f.charsetnr), f.length if f.name == "t" else None) for f in result.fields]))
                if not result.has_next:
                    return answers
                self.connection.next_result()
        except pymysql.MySQLError as error:
            return [*answers, error.args]


def python_name(charset, text):
    """What Python calls a character set that has this text with MySQL's bytes."""
    names = {"gb2312": "gb2312", "sjis": "shift_jis", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "cp949", "koi8r": "koi8_r", "koi8u": "koi8_u", "greek": "iso8859_7", "hebrew": "iso8859_8",
             "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "macroman": "mac_roman", "tis620": "tis_620"}
    return names.get(charset, charset)


def encoded(charset):
    text = TEXTS[charset]
    if charset == "eucjpms":
        return text.encode("euc_jp", "replace").replace(b"?", b"\xad\xa1")
    return text.encode(python_name(charset, text), "replace")


def statements(charset):
    text = encoded(charset)
    last = text.split()[0]
    binary = bytes(range(256)).replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\0", b"\\0")
    yield b"DROP TABLE IF EXISTS words, `t" + last + b"`"
    yield TABLE.encode()
    yield b"INSERT INTO words (id, t, l, e) VALUES (1, '" + text + b"', \"" + text + b"\", 'x'), (2, '" + last + b"\\'\\\\\\n" + last + b"''', '', NULL)"
    yield "INSERT INTO words (id, t) VALUES (3, _utf8mb4 0x".encode() + "é中Ж😀€".encode().hex().encode() + b"), (4, CONCAT('" + last + b"', '%'))"
    yield b"INSERT INTO words (id, b) VALUES (5, _binary'" + binary + b"'), (6, _binary '" + text + b"')"
    yield b"SELECT id, HEX(t), HEX(l), HEX(b), e FROM words ORDER BY id"
    yield b"SELECT id, t, l, e FROM words ORDER BY id"
    yield b"SELECT id, b FROM words WHERE id >= 5"
    yield b"SELECT id FROM words WHERE t = '" + text + b"'"
    yield b"SELECT id FROM words WHERE t LIKE '" + last + b"\\%'"
    yield b"SELECT id FROM words WHERE t LIKE '" + last + b"%' ORDER BY id"
    yield b"SELECT '" + text + b"' AS `" + last + b"`, CHAR_LENGTH('" + text + b"') AS n, CONCAT('" + last + b"', 'x') AS c"
    yield b"CREATE TABLE `t" + last + b"` (`c" + last + b"` INT)"
    yield b"SHOW TABLES"
    yield b"SELECT `c" + last + b"` FROM `t" + last + b"`"
    yield b"SELECT * FROM `no" + last + b"`"
    yield b"SELECT `" + last + b"` FROM words"
    yield b"-- it's " + last + b"\nSELECT 1 /* '" + last + b" */ # \xff"
    yield b"SET @a = '" + last + b"'; SELECT t = @a, HEX(CONVERT(@a USING utf8mb4)) FROM words WHERE id = 1; SET NAMES utf8mb4; SELECT '\xc3\xa9'; SET NAMES " + charset.encode() + b"; SELECT '" + text + b"' AS a"
    yield b"INSERT INTO words (id, b) VALUES (7, '" + binary + b"'), (8, '" + text + b"')"
    yield b"SELECT id, HEX(b) FROM words WHERE b IN ('" + binary + b"', '" + text + b"') ORDER BY id"
    yield b"SELECT HEX('" + text + b"') AS x, LENGTH('" + last + b"') AS n"
    yield b"SELECT HEX(CONVERT(_" + charset.encode() + b"'" + last + b"' USING utf8mb4)) AS x"


def like_the_reference(t, apus, mysql):
    for charset in TEXTS:
        with t.case(f"{charset}: as MySQL"):
            ours, theirs = Raw(apus, charset), Raw(mysql, charset)
            for statement in statements(charset):
                check_equal(ours(statement), theirs(statement), repr(statement))
            ours.connection.close()
            theirs.connection.close()


def drivers(t, where):
    host, port = where["host"], where["port"]
    for charset in ("gbk", "cp1251", "sjis", "big5", "euckr"):
        text = TEXTS[charset].split()[0]
        with t.case(f"{charset}: PyMySQL, from the handshake on"), contextlib.closing(pymysql.connect(**where, user="root", database="shop", charset=charset, autocommit=True)) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT @@character_set_client, @@character_set_results, @@collation_connection")
            check(cursor.fetchone()[:2] == (charset, charset), "the session is in it")
            cursor.execute("REPLACE INTO words (id, t, b) VALUES (%s, %s, %s)", (20, text, b"\x00\x80\xff"))
            cursor.execute("SELECT t, b FROM words WHERE t = %s", (text,))
            check_equal(cursor.fetchall(), ((text, b"\x00\x80\xff"),), "read again")
        with t.case(f"{charset}: Connector/Python, prepared"), contextlib.closing(mysql.connector.connect(host=host, port=port, user="root", database="shop", charset=charset, use_pure=True, autocommit=True)) as connection:
            cursor = connection.cursor(prepared=True)
            cursor.execute("REPLACE INTO words (id, t, b) VALUES (%s, %s, %s)", (21, text, b"\x00\x80\xff"))
            cursor.execute("SELECT t, b FROM words WHERE id = %s AND t = %s", (21, text))
            found = cursor.fetchone()
            found = [found[0] if isinstance(found[0], str) else bytes(found[0]).decode(python_name(charset, text)), bytes(found[1])]
            check_equal(found, [text, b"\x00\x80\xff"], "read again")
        with t.case(f"{charset}: what it wrote is what others read"), contextlib.closing(pymysql.connect(**where, user="root", database="shop")) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT t FROM words WHERE id IN (20, 21)")
            check_equal(cursor.fetchall(), ((text,),) * 2, "in UTF-8")


def files(t, apus, mysql):
    file = pathlib.Path(t.directory / "lines")
    for charset in ("gbk", "sjis", "ujis", "gb18030", "koi8r"):
        with t.case(f"LOAD DATA ... CHARACTER SET {charset}"):
            text = encoded(charset)
            file.write_bytes(b"".join(b"%d\t%s\t%s\\t%s\n" % (n, text, text, text) for n in range(1, 2000)))
            found = []
            for where in (apus, mysql):
                with contextlib.closing(pymysql.connect(**where, user="root", database="shop", local_infile=True, autocommit=True)) as connection:
                    cursor = connection.cursor()
                    cursor.execute("DROP TABLE IF EXISTS loaded")
                    cursor.execute("CREATE TABLE loaded (id INT PRIMARY KEY, a VARCHAR(90) CHARACTER SET utf8mb4, b VARCHAR(90) CHARACTER SET utf8mb4)")
                    cursor.execute(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE loaded CHARACTER SET {charset}")
                    cursor.execute("SELECT COUNT(*), MIN(a), MAX(a), MIN(b), MAX(b), SUM(CRC32(a)) FROM loaded")
                    found.append(cursor.fetchall())
            check_equal(found[0], found[1], "rows")


def consoles(t, where):
    programs = [[MARIADB, "--no-defaults"], [*reference.program("bin/mysql"), "--no-defaults"]]
    for program in programs:
        for charset in ("gbk", "cp1251", "sjis"):
            with t.case(f"{pathlib.Path(program[-2]).name} in {charset}"):
                text = encoded(charset)
                script = t.directory / "script.sql"
                script.write_bytes(b"REPLACE INTO words (id, t) VALUES (30, '" + text + b"');\nSELECT t, '" + text + b"' FROM words WHERE id = 30;\n")
                command = [*program, f"--default-character-set={charset}", f"-h{where['host']}", f"-P{where['port']}", "--protocol=TCP", "-uroot", "-N", "shop"]
                out = t.directory / "out"
                run(["sh", "-c", f'exec "$@" < {script} > {out}', "sh", *command])
                check_equal(out.read_bytes(), text + b"\t" + text + b"\n", "what it shows")


def main(t):
    problem = reference.get(reference.FOLDER)
    if problem:
        t.say(f"nothing is compared: {problem}")
        return
    with Cluster(t, data_nodes=2) as cluster, reference.MySql(t.directory / "mysql", options=["--local-infile=ON"]) as server:
        apus, mysql = {"host": cluster.sql[0], "port": cluster.sql[1]}, {"unix_socket": str(server.socket)}
        for where in (apus, mysql):
            with contextlib.closing(pymysql.connect(**where, user="root")) as connection, connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE shop")
                cursor.execute("SET GLOBAL local_infile = ON")
        like_the_reference(t, apus, mysql)
        drivers(t, apus)
        files(t, apus, mysql)
        consoles(t, apus)


if __name__ == "__main__":
    scenario_main(main)
