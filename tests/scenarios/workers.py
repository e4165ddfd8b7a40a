"""A cluster with a directory is started with another number of workers after each of its ends: more, fewer, by kills of all processes and in good order.

Everything that was acknowledged is there each time, through each index, and AUTO_INCREMENT goes on above all that it gave. Each file is whole afterwards, no
file of the number before is left, and a start that names no number has the last one.
"""

import contextlib

import pymysql

from lib.bank import Bank, connect
from lib.harness import BINARY, check, check_equal, run, scenario_main

LIMIT_SECONDS = (240, 240)


def main(t):
    with Bank(t, workers=1) as bank:
        with contextlib.closing(connect(bank.cluster.sql)) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE ticket (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20) UNIQUE)")
        tickets = take_tickets(bank, [])
        for change, (workers, ends) in enumerate([(2, "kill"), (1, "kill"), (3, "order"), (2, "kill")], start=1):
            with t.case(f"{workers} workers after {'kills of all processes' if ends == 'kill' else 'an orderly end'}"):
                bank.work(1.0)
                bank.kill_all() if ends == "kill" else bank.end()
                check_whole(bank)
                bank.options["workers"] = workers
                bank.start()
                check_logs(bank, workers, change)
                bank.check_nothing_lost()
                tickets = take_tickets(bank, tickets)
        with t.case("a start that names no number has the last one"):
            bank.work(0.5)
            bank.kill_all()
            check_whole(bank)
            del bank.options["workers"]
            bank.start()
            check_logs(bank, 2, 4)
            bank.check_nothing_lost()
            take_tickets(bank, tickets)


def take_tickets(bank, before):
    """All there are, a few more than `before`."""
    with contextlib.closing(connect(bank.cluster.sql)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM ticket ORDER BY id")
        check_equal([number for (number,) in cursor.fetchall()], before, "tickets that were given")
        for _ in range(5):
            cursor.execute(f"INSERT INTO ticket (name) VALUES ('ticket {len(before)}')")
            check(cursor.lastrowid > max(before, default=0), f"ticket {cursor.lastrowid} after {before}")
            before = [*before, cursor.lastrowid]
        with contextlib.suppress(pymysql.err.IntegrityError):
            cursor.execute("INSERT INTO ticket (name) VALUES ('ticket 0')")
            check(False, "two tickets have one name")
        return before


def check_logs(bank, workers, change):
    """Of this number of workers, and no others; said to have been made anew by who did."""
    for node in (1, 2):
        directory = bank.directory / "files" / f"data-{node}"
        controls = sorted(file.name for file in directory.glob("redo-*.ctl"))
        check_equal(controls, [f"redo-{n}-of-{workers}-{change}.ctl" for n in range(workers)], f"data node {node}")
        owners = {int(file.name.split("-")[1]) for file in (*directory.glob("redo-*.log"), *directory.glob("lcp-*.data"))}
        check(owners <= set(range(workers)), f"data node {node} has files of workers {owners}")


def check_whole(bank):
    """Where no process is left."""
    files = [file for node in (1, 2) for file in (bank.directory / "files" / f"data-{node}").glob("[rl]*-*.*")]
    code, printed = run([BINARY, "inspect", "--brief", *files])
    check(code == 0 and "nothing in it counts: the logs" not in printed, printed)


if __name__ == "__main__":
    scenario_main(main)
