"""Rust: sqlx and Diesel, each with its migrations. Each works as an application does, and writes while data nodes are killed."""

from lib.clients import Program, run_programs
from lib.cluster import Cluster
from lib.harness import CLIENTS, scenario_main

LIMIT_SECONDS = (240, 240)
SIDE_BY_SIDE = True


def main(t):
    programs = [Program(name, [CLIENTS / "rust-client", name]) for name in ("sqlx", "diesel")]
    with Cluster(t) as cluster:
        run_programs(t, cluster, programs)


if __name__ == "__main__":
    scenario_main(main)
