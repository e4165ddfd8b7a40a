"""Statements that memory has no room for go on in files: the answers are those of memory, the disk may be full, KILL leaves nothing, and others are served meanwhile."""

import os
import pathlib
import subprocess
import threading
import time

import pymysql

from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (300, 600)

ROWS = 200_000 if FULL else 40_000
# A tenth of what a sort of all rows takes.
MEMORY = ROWS * 25
FULL_DISK_BYTES = 2 << 20

STATEMENTS = [
    # More to sort than ten times the memory.
    "SELECT id, k, pad FROM t ORDER BY k, pad DESC",
    "SELECT id, pad FROM t ORDER BY g LIMIT 20",
    "SELECT id FROM t ORDER BY g, k LIMIT 5000 OFFSET 9000",
    # More groups than fit.
    "SELECT k, g, COUNT(*), SUM(d), MIN(pad), AVG(x) FROM t GROUP BY k, g",
    "SELECT pad, COUNT(*) AS many FROM t GROUP BY pad HAVING many >= 1 ORDER BY many DESC, pad LIMIT 100",
    "SELECT g, COUNT(DISTINCT pad), COUNT(DISTINCT k), SUM(DISTINCT x) FROM t GROUP BY g",
    "SELECT COUNT(DISTINCT pad), COUNT(DISTINCT id), SUM(x) FROM t",
    "SELECT DISTINCT k, pad FROM t",
    "SELECT k, g, SUM(d) FROM t GROUP BY k, g WITH ROLLUP",
    # Joins of more than memory: t is joined with itself by a column without an index.
    "SELECT a.id, b.id FROM t a JOIN t b ON a.k = b.k AND a.g < b.g ORDER BY a.id, b.id",
    "SELECT a.id, b.id, b.pad FROM t a LEFT JOIN t b ON a.pad = b.pad AND b.g > 3 ORDER BY a.k",
    "SELECT COUNT(*), SUM(a.d), MIN(c.pad) FROM t a JOIN t b ON a.k = b.k JOIN t c ON c.pad = b.pad",
    "SELECT a.id FROM t a LEFT JOIN t b ON a.k = b.k + 100000 WHERE b.id IS NULL ORDER BY a.id LIMIT 3000",
    # All rows of one value: no hash parts them.
    "SELECT a.id, COUNT(b.id), MAX(b.pad), SUM(b.x) FROM t a STRAIGHT_JOIN t b ON a.one = b.one WHERE a.id < 9 GROUP BY a.id",
    "SELECT a.id, b.id FROM t a LEFT JOIN t b ON a.one = b.one AND b.k - a.k = 1 WHERE a.id < 9 ORDER BY a.id",
    # Nothing to hash by.
    "SELECT a.id, b.id FROM t a STRAIGHT_JOIN t b ON a.k < b.k - 19000 WHERE a.id < 9",
    # Derived tables, set operations, windows.
    "SELECT COUNT(*), SUM(s.d) FROM (SELECT k, d, pad FROM t ORDER BY pad LIMIT 1000000) s",
    "WITH s AS (SELECT k, pad, d FROM t) SELECT a.k, COUNT(*) FROM s a JOIN s b ON a.pad = b.pad GROUP BY a.k",
    "SELECT k, pad FROM t WHERE g < 5 UNION SELECT k, pad FROM t WHERE g > 3 ORDER BY 2, 1",
    "SELECT k, pad FROM t WHERE g < 8 INTERSECT ALL SELECT k, pad FROM t WHERE g > 3",
    "SELECT pad FROM t EXCEPT SELECT pad FROM t WHERE g = 3",
    "SELECT id, ROW_NUMBER() OVER (ORDER BY pad, id), SUM(x) OVER (ORDER BY pad, id), COUNT(*) OVER () FROM t ORDER BY id",
    "SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY d, id), SUM(d) OVER (PARTITION BY k) FROM t ORDER BY id",
]


def connect(cluster, **options):
    host, port = cluster.sql
    return pymysql.connect(host=host, port=port, user="root", database="spill", autocommit=True, **options)


def fetch(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def status(connection, name):
    return int(fetch(connection, f"SHOW GLOBAL STATUS LIKE '{name}'")[0][1])


def nothing_left(connection, directory, what):
    wait_until(lambda: status(connection, "Apus_spill_bytes") == 0, 10, f"no bytes in files after {what}")
    check_equal(sorted(os.listdir(directory)), [], f"names in the directory after {what}")


def fill(connection):
    fetch(connection, "CREATE TABLE t (id INT PRIMARY KEY, one INT, k INT, g INT, d DECIMAL(12,2), x DOUBLE, pad VARCHAR(200))")
    step = 2000
    for first in range(0, ROWS, step):
        rows = ",".join(
            f"({n}, 1, {n * 7919 % (ROWS // 2)}, {n % 11}, {n * 31 % 1000}.25, {n % 977}.1e-3, "
            f"'{n * 104729 % (ROWS - 7):08d}{'x' * (n % 90)}')"
            for n in range(first, first + step)
        )
        fetch(connection, f"INSERT INTO t VALUES {rows}")


def refused(connection, statement, number):
    try:
        fetch(connection, statement)
    except pymysql.MySQLError as error:
        check_equal(error.args[0], number, f"the error of {statement}: {error.args}")
        return error.args[1]
    return check(False, f"{statement} was not refused")


def same_answers(t, cluster, directory):
    plain, small = connect(cluster), connect(cluster)
    fetch(small, f"SET apus_query_memory = {MEMORY}")
    for statement in STATEMENTS:
        with t.case(f"as in memory: {statement}"):
            before = status(plain, "Created_tmp_files")
            wanted = fetch(plain, statement)
            check_equal(status(plain, "Created_tmp_files"), before, "files of a statement that memory has room for")
            found = fetch(small, statement)
            check(found == wanted, f"{len(found)} rows, in memory {len(wanted)}; the first that differs: "
                  f"{next((pair for pair in zip(found, wanted) if pair[0] != pair[1]), None)}")
            if "LIMIT 20" in statement:
                check_equal(status(plain, "Created_tmp_files"), before, "files of the first rows of an order")
            else:
                check(status(plain, "Created_tmp_files") > before, "nothing was written")
    with t.case("what has to be in memory together is refused by its own limit"):
        refused(small, "SELECT id, LEAD(id) OVER (ORDER BY pad) FROM t", 3170)
    nothing_left(plain, directory, "all statements")


def killed(t, cluster, directory):
    other, victim = connect(cluster), connect(cluster)
    fetch(victim, "SET apus_query_memory = 100000")
    slow = "SELECT COUNT(*) FROM (SELECT a.id, b.pad FROM t a JOIN t b ON a.g = b.g ORDER BY b.pad, a.id) s"
    with t.case("KILL QUERY ends a statement that spills, and its files"):
        told = []
        thread = threading.Thread(target=lambda: told.append(refused(victim, slow, 1317)))
        thread.start()
        wait_until(lambda: status(other, "Apus_spill_bytes") > 3 << 20, 60, "megabytes in files")
        began = time.monotonic()
        fetch(other, f"KILL QUERY {victim.thread_id()}")
        thread.join(10)
        check(told and time.monotonic() - began < 2, f"not ended within two seconds: {told}")
        nothing_left(other, directory, "KILL")
        check_equal(fetch(victim, "SELECT 1"), ((1,),), "the connection's next statement")
    with t.case("max_execution_time ends one"):
        fetch(victim, "SET max_execution_time = 700")
        began = time.monotonic()
        refused(victim, slow, 3024)
        check(time.monotonic() - began < 3, "late")
        nothing_left(other, directory, "max_execution_time")
        fetch(victim, "SET max_execution_time = 0")
    with t.case("a connection that goes leaves nothing"):
        gone = connect(cluster)
        fetch(gone, "SET apus_query_memory = 100000")
        gone._execute_command(3, slow)
        wait_until(lambda: status(other, "Apus_spill_bytes") > 1 << 20, 60, "a megabyte in files")
        gone._force_close()
        # Whether somebody listens is found when there is something to say, or by KILL.
        ids = [row[0] for row in fetch(other, "SHOW PROCESSLIST") if row[0] != other.thread_id() and row[7]]
        for connection_id in ids:
            fetch(other, f"KILL {connection_id}")
        nothing_left(other, directory, "the connection's end")


def beside_others(t, cluster):
    """How long a row by key takes while a statement spills, on a SQL node of one thread."""
    point, big = connect(cluster), connect(cluster)
    fetch(big, f"SET apus_query_memory = {MEMORY}")

    def measure(seconds):
        took, until = [], time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            fetch(point, "SELECT pad FROM t WHERE id = 77")
            took.append(time.monotonic() - began)
        took.sort()
        return [took[len(took) * per_mille // 1000] * 1e3 for per_mille in (500, 990)] + [took[-1] * 1e3]

    with t.case("others are served while a statement spills"):
        alone = measure(2)
        ended = threading.Event()

        def work():
            while not ended.is_set():
                fetch(big, "SELECT SQL_NO_CACHE id, pad FROM t ORDER BY pad LIMIT 1 OFFSET 39000")
                fetch(big, "SELECT COUNT(*) FROM t a JOIN t b ON a.pad = b.pad")

        thread = threading.Thread(target=work)
        thread.start()
        try:
            beside = measure(6)
        finally:
            ended.set()
            thread.join()
        t.say("a row by key, ms at p50, p99 and worst: alone {:.2f} {:.2f} {:.2f}, beside {:.2f} {:.2f} {:.2f}".format(*alone, *beside))
        check(beside[1] < 100, f"p99 of {beside[1]:.1f} ms")


def full_disk(t):
    """A file system of two megabytes; takes root."""
    directory = t.directory / "full"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={FULL_DISK_BYTES}", "tmpfs", directory], capture_output=True)
    if mounted.returncode:
        t.say(f"no full disk without the right to mount: {mounted.stderr.decode().strip()}")
        return
    t.cleanup.callback(subprocess.run, ["umount", "-l", directory], capture_output=True)
    with Cluster(t, name="f", spill_dir=directory) as cluster:
        host, port = cluster.sql
        first = pymysql.connect(host=host, port=port, user="root", autocommit=True)
        fetch(first, "CREATE DATABASE spill")
        fetch(first, "USE spill")
        fill(first)
        with t.case("a full disk is the error of one statement"):
            other = connect(cluster)
            fetch(first, f"SET apus_query_memory = {MEMORY}")
            text = refused(first, STATEMENTS[0], 1021)
            check("Disk full" in text and str(directory) in text, text)
            nothing_left(other, directory, "a full disk")
            check_equal(fetch(first, "SELECT COUNT(*) FROM t"), ((ROWS,),), "the connection's next statement")
            check_equal(len(fetch(other, STATEMENTS[0])), ROWS, "the same statement in memory")
            check_equal(len(fetch(first, "SELECT k, pad FROM t WHERE id < 1500 ORDER BY pad")), 1500, "one that fits")


def limited(t):
    directory = t.directory / "l" / "own"
    with Cluster(t, name="l", spill_dir=directory, spill_limit=1 << 20) as cluster:
        host, port = cluster.sql
        first = pymysql.connect(host=host, port=port, user="root", autocommit=True)
        fetch(first, "CREATE DATABASE spill")
        fetch(first, "USE spill")
        fill(first)
        with t.case("the node's limit is kept, and said"):
            fetch(first, f"SET apus_query_memory = {MEMORY}")
            text = refused(first, STATEMENTS[0], 1114)
            check(str(directory) in text and "1048576" in text, text)
            nothing_left(first, directory, "the limit")


def drawn_statements(t):
    """Recorded answers to random joins, subqueries, windows and changes, with everything in files that can be there."""
    from lib import answers, drawn  # changes how pymysql tells errors, so it comes last

    with Cluster(t, name="d") as cluster:
        host, port = cluster.sql
        answers.connect(host=host, port=port).query("SET GLOBAL apus_query_memory = 0")
        for path in sorted(drawn.DRAWN.glob("*.result")):
            with t.case(f"drawn {path.stem} without memory"):
                count, wrong = drawn.compare(path, answers.connect(host=host, port=port))
                t.say(f"{count} statements")
                check(count > 1000 and not wrong, "\n".join([*wrong[:12], f"{len(wrong)} of {count} in all"]))


def main(t):
    with Cluster(t, sql_threads=1) as cluster:
        directory = pathlib.Path(cluster.describe()["dir"]) / "files" / "sql-1" / "spill"
        host, port = cluster.sql
        with pymysql.connect(host=host, port=port, user="root", autocommit=True) as first:
            fetch(first, "CREATE DATABASE spill")
            fetch(first, "USE spill")
            fill(first)
        same_answers(t, cluster, directory)
        killed(t, cluster, directory)
        beside_others(t, cluster)
    full_disk(t)
    limited(t)
    drawn_statements(t)


if __name__ == "__main__":
    scenario_main(main)
