"""Python: SQLAlchemy with Alembic, and Peewee, both by PyMySQL; ODBC with Debian's driver of MariaDB. Each migrates its schema, works as an application does, and writes while data nodes are killed."""

import sys

from lib import apps
from lib.clients import HERE, Program, run_programs
from lib.cluster import Cluster
from lib.harness import scenario_main

LIMIT_SECONDS = (240, 240)
SIDE_BY_SIDE = True


def main(t):
    folder = apps.unpacked("odbc", "odbc-mariadb", "libodbc2")
    odbc = {**apps.environment(folder), "APUS_ODBC_DRIVER": str(folder / "usr/lib/x86_64-linux-gnu/odbc/libmaodbc.so")}
    shop = lambda name, environment=None: Program(name, [sys.executable, HERE / "python" / f"{name}_shop.py"], environment)  # noqa: E731
    programs = [shop("sqlalchemy"), shop("peewee"), shop("odbc", odbc)]
    with Cluster(t) as cluster:
        run_programs(t, cluster, programs)


if __name__ == "__main__":
    scenario_main(main)
