"""Debian's sysbench with its own scripts, untouched."""

import re

from .harness import Failure, run, spawn, tail

READS = ["oltp_point_select", "oltp_read_only", "select_random_points", "select_random_ranges"]
WRITES = ["oltp_read_write", "oltp_insert", "oltp_delete", "oltp_update_index", "oltp_update_non_index"]
ALL = [*READS, *WRITES, "bulk_insert"]


def command(workload, verb, address, threads=1, tables=1, table_size=1000, seconds=None, ps_mode="auto", database="sbtest",
            extra=()):
    host, port = address
    line = [
        "sysbench", workload, "--db-driver=mysql", f"--mysql-host={host}", f"--mysql-port={port}", "--mysql-user=root",
        f"--mysql-db={database}", f"--threads={threads}", f"--tables={tables}", f"--table-size={table_size}",
        f"--db-ps-mode={ps_mode}",
    ]
    if workload == "bulk_insert":
        line = [a for a in line if not a.startswith(("--tables", "--table-size"))]
    if seconds is not None:
        line.append(f"--time={seconds}")
    return [*line, *extra, verb]


def sysbench(workload, verb, address, limit=300, **options):
    """Runs sysbench and fails on its return code and on any FATAL or error line; its output."""
    code, text = run(command(workload, verb, address, **options), seconds=limit, ok=False)
    refuse_errors(text)
    if code != 0:
        raise Failure(f"sysbench {workload} {verb} ended with {code}:\n{tail(text)}")
    return text


def refuse_errors(text):
    bad = [line[:200] for line in text.splitlines() if "FATAL" in line or line.startswith(("ALERT", "Error"))]
    if bad:
        raise Failure("sysbench: " + "\n".join(bad[:4]))


def start(workload, address, log, **options):
    """Starts a run in the background; the process."""
    with open(log, "wb") as out:
        return spawn(command(workload, "run", address, **options), stdout=out, stderr=out)


def figure(text, name):
    """`transactions` or `queries` per second, or latency `95th percentile`, `avg` in milliseconds."""
    if name in ("transactions", "queries"):
        found = re.search(rf"^\s*{name}:\s+\d+\s+\(([\d.]+) per sec", text, re.M)
    elif name == "events":
        found = re.search(r"total number of events:\s+(\d+)", text)
    else:
        found = re.search(rf"^\s*{name}:\s+([\d.]+)", text, re.M)
    if not found:
        raise Failure(f"sysbench printed no {name}:\n{tail(text)}")
    return float(found.group(1))
