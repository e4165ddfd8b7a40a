"""A cluster with little memory is filled to the brim: clear errors, nobody dies, deletes give the memory back."""

import pathlib
import shutil
import tempfile
import time

import pymysql

from lib.harness import Failure, check

from .rig import Rig

MEMORY_MIB = 64
ROW_BYTES = 4000
ROWS_PER_STATEMENT = 50
# MySQL's "The table is full".
FULL = 1114
PASSES_MAX = 4


def fill(cursor, first):
    """Inserts until refused; (rows inserted, the error)."""
    count = 0
    while count * ROW_BYTES < (MEMORY_MIB << 20) * 4:
        values = ", ".join(f"({first + count + i}, REPEAT('x', {ROW_BYTES}))" for i in range(ROWS_PER_STATEMENT))
        try:
            cursor.execute(f"INSERT INTO brim.t VALUES {values}")
        except pymysql.MySQLError as error:
            return count, error.args
        count += ROWS_PER_STATEMENT
    raise Failure(f"{count} rows of {ROW_BYTES} bytes went into {MEMORY_MIB} MiB")


def empty(cursor, rows):
    """Deletes everything, first in hundreds, then, where that is refused, row by row and again; how many statements were refused."""
    refused = 0
    left = rows
    for _ in range(PASSES_MAX):
        for begin in range(0, rows, 100):
            refused += delete(cursor, f"id >= {begin} AND id < {begin + 100}")
        cursor.execute("SELECT id FROM brim.t")
        ids = [id for (id,) in cursor.fetchall()]
        if not ids:
            return refused
        check(len(ids) < left or refused, f"{len(ids)} rows are there that were deleted")
        left = len(ids)
        refused += sum(delete(cursor, f"id = {id}") for id in ids[:100])
    raise Failure(f"{left} rows could not be deleted in {PASSES_MAX} passes")


def delete(cursor, where):
    """1 if it was refused for want of memory."""
    try:
        cursor.execute(f"DELETE FROM brim.t WHERE {where}")
    except pymysql.MySQLError as error:
        check(error.args[0] == FULL, f"DELETE: {error.args}")
        return 1
    return 0


def one_round(rig, cursor, number):
    begin = time.monotonic()
    rows, error = fill(cursor, 0)
    check(error[0] == FULL, f"a full memory is refused with {error}, wanted {FULL}")
    cursor.execute("SELECT COUNT(*) FROM brim.t")
    held = cursor.fetchone()[0]
    check(held == rows, f"{rows} rows were acknowledged, {held} are there")
    states = rig.states()
    check(all(s == "up" for s in states.values()), f"a full memory took a node down: {states}")
    check(all(n.is_running() for n in rig.everyone()), "a process ended")
    refused = empty(cursor, rows)
    return {"rows": rows, "refused": refused, "error": f"{error[0]} {error[1]}", "seconds": time.monotonic() - begin}


def measure(rounds, say):
    """Filled and emptied so often; every round must take about as many rows as the first."""
    row = {"key": "memory", "rounds": 0, "failures": [], "rows": [], "error": "", "deletes_refused": 0}
    directory = pathlib.Path(tempfile.mkdtemp(prefix="apus-p-", dir="/tmp"))
    try:
        with Rig(directory, data_nodes=2, sql_nodes=1, memory=MEMORY_MIB) as rig:
            host, port = rig.sql[0].host.address, rig.sql[0].port
            connection = pymysql.connect(host=host, port=port, user="root", password=rig.password, autocommit=True)
            with connection, connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE brim")
                cursor.execute(f"CREATE TABLE brim.t (id INT NOT NULL PRIMARY KEY, v VARCHAR({ROW_BYTES}) NOT NULL)")
                for number in range(rounds):
                    found = one_round(rig, cursor, number)
                    row["rounds"] += 1
                    row["rows"].append(found["rows"])
                    row["error"] = found["error"]
                    row["deletes_refused"] += found["refused"]
                    say(f"memory {number + 1}: {found['rows']} rows, then {found['error']}, {found['seconds']:.1f} s")
                first, last = row["rows"][0], row["rows"][-1]
                check(last >= 0.9 * first, f"deletes give too little back: {first} rows fitted, then {last}")
            rig.check_no_crash()
    except (Failure, pymysql.MySQLError) as failure:
        row["failures"].append(str(failure).splitlines()[0])
        say(f"memory: {failure}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    row["goal_met"] = not row["failures"] and not row["deletes_refused"]
    return row
