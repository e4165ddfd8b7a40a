"""Files of a SQL node: `mysqldump --tab` and `mysqlimport` without --local carry tables away and back, a large result goes through little memory and stops nobody, a full disk is told, and nothing
leads out of the directory that `--secure-file-priv` names, which nobody names unless it is asked for."""

import os
import pathlib
import subprocess
import threading
import time

import pymysql

from lib.asking import ask, error_of
from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, rss_kib, run, scenario_main, wait_until
from lib.mysql import get, program

LIMIT_SECONDS = (120, 300)
SIDE_BY_SIDE = True
ROWS = 2_000_000 if FULL else 300_000
# What a SQL node may take for a result on its way into a file, or for a file on its way into a table: batches of rows, and the row images of a transaction are the data nodes'.
GROWTH_MIB = 64
# Another connection of the same thread waits no longer for an answer, meanwhile.
STALL_SECONDS = 1.0
SMALL_KIB = 64


def connect(where, **options):
    host, port = where
    return pymysql.connect(host=host, port=port, user="root", autocommit=True, **options)


def tables(connection):
    ask(connection, "CREATE DATABASE shop")
    ask(connection, "USE shop")
    ask(connection, "CREATE TABLE texts (id INT PRIMARY KEY, t VARCHAR(100), b VARBINARY(20), l VARCHAR(20) CHARACTER SET latin1, n DECIMAL(10,2), d DATETIME)")
    odd = "tab\tline\nback\\slash 'quote\" zero\0 中 é"
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO texts VALUES (1, %s, x'00ff5c09', 'é', 1.5, '2020-01-01 10:00:00'), (2, NULL, NULL, NULL, NULL, NULL), (3, '', '', '', 0, NULL)", (odd,))
    ask(connection, "CREATE TABLE numbers (id INT PRIMARY KEY, v INT, KEY (v))")
    ask(connection, "INSERT INTO numbers WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i, i * 7 FROM n")


def client(name, where, *arguments):
    host, port = where
    command = [*program(f"bin/{name}"), "--no-defaults", f"--host={host}", f"--port={port}", "--protocol=tcp", "--user=root", *arguments]
    return run(command, seconds=60)[1]


def carried(t, cluster, files):
    """A database by mysqldump --tab, into files of the SQL node, and back by mysqlimport."""
    connection = connect(cluster.sql)
    tables(connection)
    wanted = {table: ask(connection, f"SELECT * FROM {table} ORDER BY id") for table in ("texts", "numbers")}
    folder = files / "tab"
    folder.mkdir()
    client("mysqldump", cluster.sql, f"--tab={folder}", "shop")
    check_equal(sorted(path.name for path in folder.iterdir()), ["numbers.sql", "numbers.txt", "texts.sql", "texts.txt"], "files of mysqldump")
    check((folder / "texts.txt").stat().st_mode & 0o777 == 0o640, "a file is for its owner and group")
    for table in wanted:
        ask(connection, f"TRUNCATE {table}")
        # Without an option it sets character_set_database to binary: the bytes of each column are its own.
        said = client("mysqlimport", cluster.sql, "shop", str(folder / f"{table}.txt"))
        check("Records" in said, said)
        check_equal(ask(connection, f"SELECT * FROM {table} ORDER BY id"), wanted[table], f"rows of {table}")
    folder = files / "csv"
    folder.mkdir()
    client("mysqldump", cluster.sql, f"--tab={folder}", "--fields-terminated-by=,", "--fields-optionally-enclosed-by=\"", "--lines-terminated-by=\\r\\n", "shop", "numbers")
    check_equal((folder / "numbers.txt").read_bytes()[:14], b"1,7\r\n2,14\r\n3,2", "a file with commas")
    ask(connection, "TRUNCATE numbers")
    client("mysqlimport", cluster.sql, "--fields-terminated-by=,", "--lines-terminated-by=\\r\\n", "shop", str(folder / "numbers.txt"))
    check_equal(ask(connection, "SELECT COUNT(*), SUM(v) FROM numbers"), ((1000, 3503500),), "rows of a file with commas")
    connection.close()


def longest_wait(where, over):
    """The longest that another connection waits for an answer until `over` is set."""
    connection, longest = connect(where), 0.0
    while not over.is_set():
        start = time.monotonic()
        ask(connection, "SELECT 1")
        longest = max(longest, time.monotonic() - start)
    connection.close()
    return longest


def large(t, cluster, files):
    """A large result into a file and from there into a table, beside a connection that wants answers."""
    connection = connect(cluster.sql, database="shop")
    pid = cluster.describe()["sql"][0]["pid"]
    ask(connection, "CREATE TABLE big (id INT PRIMARY KEY, t VARCHAR(200))")
    ask(connection, "SET cte_max_recursion_depth = 1000000000")
    piece = 100_000
    for first in range(0, ROWS, piece):
        ask(connection, f"INSERT INTO big WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {piece}) SELECT i + {first}, REPEAT('x', 100) FROM n")
    over, waits = threading.Event(), []
    before = rss_kib(pid)
    other = threading.Thread(target=lambda: waits.append(longest_wait(cluster.sql, over)))
    other.start()
    try:
        with connection.cursor() as cursor:
            check_equal(cursor.execute(f"SELECT * FROM big INTO OUTFILE '{files}/big'"), ROWS, "rows written")
        written = rss_kib(pid) - before
        check_equal(sum(1 for _ in open(files / "big", "rb")), ROWS, "lines of the file")
    finally:
        over.set()
        other.join()
    check(written < GROWTH_MIB << 10, f"a file of {os.path.getsize(files / 'big') >> 20} MiB took {written >> 10} MiB")
    check(waits[0] < STALL_SECONDS, f"another connection waited for {waits[0]:.2f} s")
    ask(connection, "CREATE TABLE back LIKE big")
    half = files / "half"
    with open(files / "big", "rb") as source, open(half, "wb") as target:
        target.writelines(line for number, line in enumerate(source) if number < ROWS // 4)
    with connection.cursor() as cursor:
        check_equal(cursor.execute(f"LOAD DATA INFILE '{half}' INTO TABLE back"), ROWS // 4, "rows loaded")
    check_equal(ask(connection, "SELECT COUNT(*) FROM back JOIN big USING (id, t)"), ((ROWS // 4,),), "rows as they were")
    connection.close()


def interrupted(t, cluster, files):
    """KILL leaves a part of the file; a data node that dies in the middle does not, since the statement begins its file again."""
    root, connection = connect(cluster.sql), connect(cluster.sql, database="shop")
    slow = f"SELECT * FROM big a JOIN big b ON a.t = b.t INTO OUTFILE '{files}/killed'"
    found = []
    thread = threading.Thread(target=lambda: found.append(error_of(connection, slow)))
    thread.start()
    wait_until(lambda: (files / "killed").exists() and (files / "killed").stat().st_size > 0, 30, "the file grows")
    ask(root, f"KILL QUERY {connection.thread_id()}")
    thread.join()
    check_equal(found[0][0], 1317, "KILL")
    check_equal(error_of(connection, "SELECT 1 INTO OUTFILE '%s/killed'" % files)[0], 1086, "what was written stays")
    check_equal(ask(connection, "SELECT COUNT(*) FROM big"), ((ROWS,),), "the connection lives")
    with_functions = f"SELECT id, doubled(id) FROM big WHERE id <= 100 INTO OUTFILE '{files}/called'"
    ask(connection, "CREATE FUNCTION doubled(n INT) RETURNS INT DETERMINISTIC NO SQL RETURN 2 * n")
    ask(connection, with_functions)
    lines = sorted(tuple(map(int, line.split())) for line in (files / "called").read_text().splitlines())
    check_equal(lines, [(n, 2 * n) for n in range(1, 101)], "rows with values of a function, which the statement was run twice for")
    for node in cluster.data_ids():
        target = files / f"node{node}"
        done = []

        def write():
            with connection.cursor() as cursor:
                done.append(cursor.execute(f"SELECT * FROM big INTO OUTFILE '{target}'"))

        thread = threading.Thread(target=write)
        thread.start()
        wait_until(lambda: target.exists() and target.stat().st_size > 0, 30, "the file grows")
        cluster.kill(node)
        thread.join()
        check_equal(done, [ROWS], f"rows, although node {node} died")
        with open(target, "rb") as lines:
            numbers = [int(line.split(b"\t", 1)[0]) for line in lines]
        check_equal(sorted(numbers), list(range(1, ROWS + 1)), "each row once")
        target.unlink()
        cluster.wait_down(node)
        cluster.restart(node)
        cluster.wait_up(node)
    connection.close()
    root.close()


def full_disk(t, cluster, files):
    """A disk that is full is an error; what fitted stays, as with MySQL, and so does the statement's name for it."""
    small = files / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_KIB}k", "none", str(small)], stderr=subprocess.DEVNULL).returncode != 0:
        return "not root: no small disk"
    try:
        connection = connect(cluster.sql, database="shop")
        error = error_of(connection, f"SELECT REPEAT('a', 200000) INTO OUTFILE '{small}/f'")
        check_equal(error, (3, f"Error writing file '{small}/f' (OS errno 28 - No space left on device)"), "a full disk")
        check_equal((small / "f").stat().st_size, SMALL_KIB << 10, "what fitted")
        check_equal(error_of(connection, f"SELECT 1 INTO OUTFILE '{small}/f'")[0], 1086, "the file stays")
        (small / "f").unlink()
        ask(connection, f"SELECT 1 INTO OUTFILE '{small}/f'")
        connection.close()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def paths(t, cluster, files):
    """Links, pipes and unreadable files."""
    connection = connect(cluster.sql)
    secret = files.parent / "secret"
    secret.write_text("secret")
    (files / "leak").symlink_to(secret)
    (files / "up").symlink_to(files.parent)
    (files / "new").symlink_to(files.parent / "made")
    (files / "dangling").symlink_to(files / "nothing")
    os.mkfifo(files / "pipe")
    for name in ("leak", "up/secret", "../secret"):
        check_equal(ask(connection, f"SELECT LOAD_FILE('{files}/{name}')"), ((None,),), f"LOAD_FILE of {name}")
        check_equal(error_of(connection, f"LOAD DATA INFILE '{files}/{name}' INTO TABLE shop.texts")[0], 1290, f"LOAD DATA of {name}")
    for name, number in (("leak", 1290), ("up/made", 1290), ("../made", 1290), ("new", 1), ("dangling", 1)):
        error = error_of(connection, f"SELECT 1 INTO OUTFILE '{files}/{name}'")
        check(error and error[0] == number, f"INTO OUTFILE {name}: {error}")
    check(not (files.parent / "made").exists(), "a file was made outside")
    check_equal(error_of(connection, f"LOAD DATA INFILE '{files}/pipe' INTO TABLE shop.texts")[0], 1085, "LOAD DATA of a pipe")
    check_equal(error_of(connection, f"LOAD DATA INFILE '{files}/dangling' INTO TABLE shop.texts")[0], 13, "LOAD DATA of a link to nothing")
    check_equal(error_of(connection, f"LOAD DATA INFILE '{files}/new' INTO TABLE shop.texts")[0], 13, "LOAD DATA of a link to nothing outside")
    connection.close()


def switched_off(t, cluster):
    """Without --secure-file-priv there are no files; with an empty one there are all."""
    _, node = cluster.more_sql("off")
    connection = connect((node["host"], node["port"]))
    check_equal(ask(connection, "SELECT @@secure_file_priv"), (("NULL",),), "secure_file_priv unless it is said")
    outside = cluster.home / "outside"
    for statement in (f"SELECT 1 INTO OUTFILE '{outside}'", f"SELECT 1 INTO DUMPFILE '{outside}'", f"LOAD DATA INFILE '{outside}' INTO TABLE shop.texts"):
        check_equal(error_of(connection, statement), (1290, "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement"), statement)
    check_equal(ask(connection, "SELECT LOAD_FILE('/etc/passwd')"), ((None,),), "LOAD_FILE")
    connection.close()
    _, node = cluster.more_sql("anywhere", "--secure-file-priv=")
    connection = connect((node["host"], node["port"]))
    check_equal(ask(connection, "SELECT @@secure_file_priv"), (("",),), "secure_file_priv of all files")
    ask(connection, f"SELECT 1 INTO OUTFILE '{outside}'")
    check_equal(outside.read_text(), "1\n", "a file anywhere")
    check_equal(ask(connection, f"SELECT LOAD_FILE('{outside}')"), ((b"1\n",),), "LOAD_FILE anywhere")
    connection.close()


def main(t):
    problem = get()
    check(not problem, problem)
    files = pathlib.Path(t.directory / "files").resolve()
    files.mkdir()
    with Cluster(t, secure_file_priv=files, sql_threads=1) as cluster:
        with t.case("mysqldump --tab and mysqlimport"):
            carried(t, cluster, files)
        with t.case("a large result"):
            large(t, cluster, files)
        with t.case("statements that are interrupted"):
            interrupted(t, cluster, files)
        with t.case("a full disk"):
            full_disk(t, cluster, files)
        with t.case("paths"):
            paths(t, cluster, files)
        with t.case("without files"):
            switched_off(t, cluster)


if __name__ == "__main__":
    scenario_main(main)
