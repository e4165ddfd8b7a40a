"""Django: its own tables and those of a small shop are migrated twice, read and written as an application does, by its admin's pages, and while data nodes are killed."""

import json
import pathlib
import subprocess
import sys

from lib.cluster import Cluster
from lib.harness import check, end, run, scenario_main
from lib.mariadb import batch

LIMIT_SECONDS = (240, 240)
SIDE_BY_SIDE = True
APP = pathlib.Path(__file__).resolve().parents[1] / "clients" / "django" / "app.py"


def main(t):
    with Cluster(t) as cluster:
        host, port = cluster.sql
        batch("CREATE DATABASE django CHARACTER SET utf8mb4", host=host, port=port)
        command = [sys.executable, APP, str(port)]

        def app(*arguments):
            code, text = run([*command, *arguments], seconds=120, ok=False)
            check(code == 0, text)

        with t.case("the tables of Django and of the shop are made, and changed when rows are there"):
            app("migrate", "0001")
            app("fill")
            app("migrate")
        with t.case("models, queries, constraints, transactions and the admin's pages"):
            app("work")
        with t.case("transactions go on while each data node is killed and joins again"):
            writer = subprocess.Popen([*command, "load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            t.cleanup.callback(end, writer)
            check(writer.stdout.readline() == "writes\n", "it does not begin")
            list(cluster.kill_each())
            text, _ = writer.communicate("\n", timeout=120)
            check(writer.returncode == 0, text)
            found = json.loads(text.splitlines()[-1])
            check(found["numbers"] > 0, "nothing was written")
            t.say(f"{found['numbers']} transactions, {found['retried']} of them run again after 1213")


if __name__ == "__main__":
    scenario_main(main)
