"""LOAD DATA LOCAL INFILE by stock clients: a file of many rows arrives whole, or not at all when its client or a data node goes in the middle; what a client sends
that is no file of rows is refused, and connection and server live on."""

import pathlib
import socket

import pymysql

from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, rss_kib, run, scenario_main, tail

LIMIT_SECONDS = (120, 400)
SIDE_BY_SIDE = True
ROWS = 2_000_000 if FULL else 200_000
# What a SQL node may take for a line that does not end: it keeps 16 MiB of one, and has room for as much again.
ENDLESS_MIB, GROWTH_MIB = 64, 64
TABLE = "CREATE TABLE IF NOT EXISTS rows_of_file (id INT PRIMARY KEY, name VARCHAR(40), v BIGINT, KEY (v))"


class Sent:
    """In place of pymysql's reader of files: sends the pieces of an iterator."""

    pieces = ()

    def __init__(self, name, connection):
        self.connection = connection

    def send_data(self):
        for piece in Sent.pieces:
            self.connection.write_packet(piece)
        self.connection.write_packet(b"")


pymysql.connections.LoadLocalFile = Sent


def connect(cluster, local=True):
    host, port = cluster.sql
    return pymysql.connect(host=host, port=port, user="root", database="files", autocommit=True, local_infile=local)


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def load(connection, pieces, statement="LOAD DATA LOCAL INFILE 'f' INTO TABLE rows_of_file"):
    """What became of it: the number of rows, or the error."""
    Sent.pieces = pieces
    try:
        with connection.cursor() as cursor:
            return cursor.execute(statement)
    except pymysql.MySQLError as error:
        return error


def row(i):
    return f"{i}\trow {i}\t{i % 1000}\n"


def pieces_of(count, first=0, per_piece=500):
    for at in range(first, first + count, per_piece):
        yield "".join(row(i) for i in range(at, min(at + per_piece, first + count))).encode()


def client(cluster, tool, *arguments, ok=True):
    host, port = cluster.sql
    return run([tool, "--no-defaults", f"-h{host}", f"-P{port}", "-uroot", "--protocol=TCP", *arguments], ok=ok)


def count(connection, table="rows_of_file"):
    return ask(connection, f"SELECT COUNT(*) FROM {table}")[0][0]


def stock_clients(t, cluster, connection, directory):
    file = directory / "rows_of_file.txt"
    file.write_text("".join(row(i) for i in range(ROWS)))
    statement = f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE rows_of_file"
    with t.case("refused where it was not switched on"):
        code, text = client(cluster, "mariadb", "--local-infile=1", "-e", statement, "files", ok=False)
        check(code != 0 and "3948" in text, f"without local_infile: {text}")
        ask(connection, "SET GLOBAL local_infile = ON")
        check_equal(load(connect(cluster, local=False), ()).args[0], 3948, "a client without the capability")
    with t.case(f"mysql loads {ROWS:,} rows"):
        _, text = client(cluster, "mariadb", "--local-infile=1", "-vv", "-e", statement, "files")
        check(f"Records: {ROWS}  Deleted: 0  Skipped: 0  Warnings: 0" in text, tail(text))
        found = ask(connection, "SELECT COUNT(*), SUM(v), MAX(id) FROM rows_of_file")[0]
        check_equal([int(n) for n in found], [ROWS, sum(i % 1000 for i in range(ROWS)), ROWS - 1], "what is there")
        check_equal(ask(connection, "SELECT name FROM rows_of_file WHERE id = 777"), (("row 777",),), "a row")
    with t.case("mysqlimport skips what is there, and replaces it"):
        some = directory / "again" / "rows_of_file.csv"
        some.parent.mkdir()
        some.write_text("id,name\n" + "".join(f'{i},"new, {i}"\n' for i in range(ROWS - 500, ROWS + 500)))
        options = ["--local", "--fields-terminated-by=,", '--fields-optionally-enclosed-by="', "--ignore-lines=1", "--columns=id,name", "files", str(some)]
        _, text = client(cluster, "mariadb-import", *options)
        check("Records: 1000  Deleted: 0  Skipped: 500  Warnings: 500" in text, text)
        _, text = client(cluster, "mariadb-import", "--replace", *options)
        check("Records: 1000  Deleted: 500" in text, text)
        check_equal(ask(connection, f"SELECT name, v FROM rows_of_file WHERE id = {ROWS - 1}"), ((f"new, {ROWS - 1}", None),), "a replaced row")
        check_equal(count(connection), ROWS + 500, "rows")


def clients_that_go(t, cluster, connection):
    ask(connection, "TRUNCATE rows_of_file")
    with t.case("a client that goes in the middle leaves nothing"):
        def half(lost):
            yield from pieces_of(5_000)
            lost._sock.shutdown(socket.SHUT_RDWR)
            raise pymysql.OperationalError(0, "cut off")

        lost = connect(cluster)
        load(lost, half(lost))
        # The lock of a row that was loaded is free when the transaction is rolled back.
        ask(connection, "INSERT INTO rows_of_file VALUES (0, 'mine', 0)")
        check_equal(count(connection), 1, "rows beside the one of another")
        ask(connection, "TRUNCATE rows_of_file")
    with t.case("KILL ends it: the query, and the connection"):
        for word, errno, lives in (("QUERY", 1317, True), ("CONNECTION", None, False)):
            killed = connect(cluster)

            def sent(killed=killed, word=word):
                yield from pieces_of(5_000)
                ask(connection, f"KILL {word} {killed.thread_id()}")
                yield from pieces_of(5_000, first=5_000)

            try:
                error = load(killed, sent())
            except (AttributeError, OSError) as lost:  # pymysql forgets its socket and asks for it
                error = lost
            check(isinstance(error, Exception), f"KILL {word}: {error}")
            check(errno is None or error.args[0] == errno, f"KILL {word}: {error}")
            if lives:
                check_equal(ask(killed, "SELECT 1"), ((1,),), "the connection")
            ask(connection, "INSERT INTO rows_of_file VALUES (0, 'mine', 0)")
            check_equal(count(connection), 1, "rows beside the one of another")
            ask(connection, "TRUNCATE rows_of_file")
    with t.case("a client that sends no file gets an answer"):
        check_equal(load(connection, ()), 0, "rows of a file that is refused")
    with t.case("within a transaction it is rolled back with it"):
        ask(connection, "BEGIN")
        check_equal(load(connection, pieces_of(3_000)), 3_000, "rows")
        ask(connection, "ROLLBACK")
        check_equal(count(connection), 0, "rows behind ROLLBACK")


def no_files_of_rows(t, cluster, connection):
    sql = cluster.describe()["sql"][0]["pid"]
    with t.case("a line without end is refused, and costs no memory"):
        before, sizes = rss_kib(sql), []

        def endless():
            for _ in range(ENDLESS_MIB):
                yield from [b"x" * (1 << 16)] * 16
                sizes.append(rss_kib(sql))

        error = load(connection, endless())
        check(isinstance(error, pymysql.MySQLError) and error.args[0] == 1118 and "row 1 of the file" in error.args[1], f"a line without end: {error}")
        grown = (max(sizes) - before) >> 10
        check(grown < GROWTH_MIB, f"the SQL node has grown by {grown} MiB")
        t.say(f"a line of {ENDLESS_MIB} MiB: the SQL node has grown by {grown} MiB")
        check_equal(ask(connection, "SELECT 1"), ((1,),), "the connection")
    with t.case("an error in the middle comes behind the file"):
        statement = "LOAD DATA LOCAL INFILE 'f' REPLACE INTO TABLE rows_of_file"

        def wrong():
            yield from pieces_of(5_000)
            yield b"x\ty\tz\n"
            yield from pieces_of(5_000, first=5_000)

        error = load(connection, wrong(), statement)
        check(isinstance(error, pymysql.MySQLError) and error.args[0] == 1366 and "row 5001" in error.args[1], f"a wrong value: {error}")
        check_equal(count(connection), 0, "rows of a statement that failed")
        check_equal(load(connection, pieces_of(2_000), statement), 2_000, "rows of the next")
    with t.case("warnings are counted, and some are kept"):
        with connection.cursor() as cursor:
            Sent.pieces = (f"{i}\tname\twrong\n".encode() for i in range(10_000, 15_000))
            check_equal(cursor.execute("LOAD DATA LOCAL INFILE 'f' INTO TABLE rows_of_file"), 5_000, "rows")
            answer = connection._result.message
            check(answer.endswith(b"Records: 5000  Deleted: 0  Skipped: 0  Warnings: 5000"), f"the answer: {answer}")
        check_equal(ask(connection, "SHOW WARNINGS LIMIT 1")[0][1], 1366, "the first warning")


def a_data_node_dies(t, cluster, connection):
    ask(connection, "TRUNCATE rows_of_file")
    with t.case("a data node dies in the middle: all rows, or an error and none"):
        def sent():
            yield from pieces_of(20_000)
            cluster.kill(1)
            yield from pieces_of(20_000, first=20_000)

        done = load(connection, sent())
        found = count(connection)
        if isinstance(done, pymysql.MySQLError):
            check(done.args[0] in (1213, 1180, 1297), f"the error: {done}")
            check(found == 0 or done.args[0] == 1180 and found == 40_000, f"{found} rows behind {done}")
        else:
            check_equal((done, found), (40_000, 40_000), "rows")
        t.say(f"a data node died: {done}")
        cluster.wait_down(1)
        ask(connection, "TRUNCATE rows_of_file")
        check_equal(load(connection, pieces_of(5_000)), 5_000, "rows with the node that is left")
        cluster.restart(1)
        cluster.wait_up(1)
        check_equal(count(connection), 5_000, "rows when it is back")


def privileges_on_columns(t, cluster, connection):
    with t.case("an account loads the columns that it was granted, and no others"):
        for statement in ("CREATE TABLE part (id INT PRIMARY KEY, a INT, b INT)", "CREATE USER few IDENTIFIED BY 'few'",
                          "GRANT INSERT (id, a) ON part TO few"):
            ask(connection, statement)
        host, port = cluster.sql
        tls = {"check_hostname": False, "verify_mode": "none"}
        few = pymysql.connect(host=host, port=port, user="few", password="few", database="files", autocommit=True, local_infile=True, ssl=tls)
        into = "LOAD DATA LOCAL INFILE 'f' INTO TABLE part"
        check_equal(load(few, [b"1\t10\n"], into + " (id, a)"), 1, "rows of granted columns")
        for what, number in ((into, 1142), (into + " (id, b)", 1143), (into + " (id, a) SET b = 1", 1143)):
            found = load(few, [b"2\t20\n"], what)
            check(isinstance(found, pymysql.MySQLError) and found.args[0] == number, f"{what}: {found!r}, not {number}")
        check_equal(ask(connection, "SELECT * FROM part"), ((1, 10, None),), "rows of the table")


def main(t):
    with Cluster(t, data_nodes=2, memory=1024) as cluster:
        host, port = cluster.sql
        ask(pymysql.connect(host=host, port=port, user="root"), "CREATE DATABASE files")
        connection = connect(cluster)
        ask(connection, TABLE)
        stock_clients(t, cluster, connection, pathlib.Path(t.directory))
        clients_that_go(t, cluster, connection)
        no_files_of_rows(t, cluster, connection)
        privileges_on_columns(t, cluster, connection)
        a_data_node_dies(t, cluster, connection)
        cluster.check_all_alive()


if __name__ == "__main__":
    scenario_main(main)
