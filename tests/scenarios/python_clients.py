"""Python: SQLAlchemy with Alembic, and Peewee, both by PyMySQL. Each migrates its schema, works as an application does, and writes while data nodes are killed."""

import sys

from lib.clients import HERE, Program, run_programs
from lib.cluster import Cluster
from lib.harness import scenario_main

LIMIT_SECONDS = (240, 240)


def main(t):
    programs = [Program(name, [sys.executable, HERE / "python" / f"{name}_shop.py"]) for name in ("sqlalchemy", "peewee")]
    with Cluster(t) as cluster:
        run_programs(t, cluster, programs)


if __name__ == "__main__":
    scenario_main(main)
