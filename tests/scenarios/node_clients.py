"""Node.js: mysql2 by itself and what is built on it; Prisma, which brings a driver of its own. Each migrates its schema, works as an application does, and writes while data nodes are killed."""

import os
import shutil

from lib.clients import HERE, Program, run_programs
from lib.cluster import Cluster
from lib.harness import CLIENTS, scenario_main

LIMIT_SECONDS = (240, 240)
SIDE_BY_SIDE = True
NAMES = ["mysql2", "sequelize", "knex", "typeorm", "prisma"]


def main(t):
    environment = {**os.environ, "NODE_PATH": str(CLIENTS / "node" / "node_modules")}
    programs = [Program(name, [shutil.which("node") or "node", HERE / "node" / f"{name}.js"], environment) for name in NAMES]
    with Cluster(t) as cluster:
        run_programs(t, cluster, programs)


if __name__ == "__main__":
    scenario_main(main)
