"""Java: Hibernate with the tables that it makes itself, and jOOQ with those of Flyway. Each works as an application does, and writes while data nodes are killed."""

import shutil

from lib.clients import Program, run_programs
from lib.cluster import Cluster
from lib.harness import CLIENTS, scenario_main

LIMIT_SECONDS = (240, 240)
SIDE_BY_SIDE = True


def main(t):
    classes = f"{CLIENTS / 'orm-java'}:{(CLIENTS / 'orm-java-classpath').read_text().strip()}"
    programs = [Program(name, [shutil.which("java") or "java", "-cp", classes, f"apus.{name}"]) for name in ("Hibernate", "Jooq")]
    with Cluster(t) as cluster:
        run_programs(t, cluster, programs)


if __name__ == "__main__":
    scenario_main(main)
