"""The statements of tests/reference/cases have the answers that were recorded from MySQL; tests/reference/run.py says more."""

from lib import cases
from lib.cluster import Cluster
from lib.harness import Failure, check, scenario_main

LIMIT_SECONDS = (180, 180)
SHOWN = 12


def main(t):
    paths = cases.paths()
    check(paths, "no cases")
    files = {}
    with Cluster(t) as cluster:
        host, port = cluster.sql
        for path in paths:
            with t.case(path.stem):
                files[path], wrong, speed = cases.compare(path, host=host, port=port)
                t.say(f"{len(files[path])} statements, {speed:.0f} per second")
                if wrong:
                    raise Failure("\n".join([*wrong[:SHOWN], f"{len(wrong)} in all"]))
        if len(files) == len(paths):
            with t.case("docs/sql.md lists the differences"):
                check(cases.documented() == cases.table(files), "tests/reference/run.py --docs")


if __name__ == "__main__":
    scenario_main(main)
