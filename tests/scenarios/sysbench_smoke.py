"""Every sysbench workload of issue 2: prepare, run, cleanup without an error, with and without prepared statements."""

from lib.cluster import Cluster
from lib.harness import FULL, scenario_main
from lib.mariadb import batch
from lib.sysbench import ALL, figure, sysbench

LIMIT_SECONDS = (420, 3600)
TABLES, ROWS, SECONDS = (10, 100_000, 10) if FULL else (2, 5_000, 2)
# CI runs the corners of the square; FULL all of it.
MODES = [("auto", 1), ("auto", 16), ("disable", 1), ("disable", 16)] if FULL else [("auto", 16), ("disable", 1)]


def main(t):
    with Cluster(t) as cluster:
        host, port = cluster.sql
        batch("CREATE DATABASE sbtest", host=host, port=port)
        size = {"tables": TABLES, "table_size": ROWS}
        for workload in ALL:
            for mode, threads in MODES:
                with t.case(f"{workload} ps-mode={mode} threads={threads}"):
                    # bulk_insert makes one table per thread and has to be given the threads for all three steps.
                    whole = {**size, "ps_mode": mode, "threads": threads if workload == "bulk_insert" else min(4, TABLES)}
                    if workload.startswith("select_random"):  # these refuse more than one table
                        whole |= {"tables": 1, "threads": 1}
                    try:
                        sysbench(workload, "prepare", cluster.sql, limit=900, **whole)
                        text = sysbench(workload, "run", cluster.sql, seconds=SECONDS, limit=SECONDS + 60,
                                        **{**whole, "threads": threads})
                        events = figure(text, "events")
                        t.say(f"{workload} {mode} {threads}: {events / SECONDS:.0f} events/s, "
                              f"{figure(text, '95th percentile'):.2f} ms p95")
                    finally:
                        sysbench(workload, "cleanup", cluster.sql, limit=120, **whole)
        with t.case("all nodes are alive"):
            cluster.check_all_alive()


if __name__ == "__main__":
    scenario_main(main)
