"""PHP by itself: mysqli, and PDO with prepared statements of the server and with those that it emulates. Each works as an application does, and writes while data nodes are killed."""

from lib import apps
from lib.clients import HERE, Program, run_programs
from lib.cluster import Cluster
from lib.harness import scenario_main

LIMIT_SECONDS = (240, 240)
SIDE_BY_SIDE = True


def main(t):
    folder = apps.unpacked("php", "php-cli", "php-mysql")
    php = [*apps.php(folder, ["mysqlnd", "mysqli", "pdo", "pdo_mysql"], "mysqli.allow_local_infile=1"), HERE / "php" / "shop.php"]
    names = {"mysqli": "mysqli", "PDO-emulated": "emulated", "PDO-prepared": "prepared"}
    programs = [Program(name, [*php, way], apps.environment(folder)) for name, way in names.items()]
    with Cluster(t) as cluster:
        run_programs(t, cluster, programs)


if __name__ == "__main__":
    scenario_main(main)
