"""`apus dev`: what it promises about its ready file, its ports, its children and its end."""

import os
import pathlib
import signal
import socket

from lib.cluster import Cluster
from lib.harness import alive, check, check_equal, scenario_main, wait_until
from lib.mariadb import batch

LIMIT_SECONDS = (240, 240)


def ready_file_shape(cluster):
    state = cluster.describe()
    check_equal(sorted(state), ["data", "dir", "mgmt", "mgmts", "sql"], "keys of the ready file")
    check({"host", "port"} <= set(state["mgmt"]), f"mgmt: {state['mgmt']}")
    check_equal([node["port"] for node in state["mgmts"]], [state["mgmt"]["port"]], "management nodes")
    for node in state["sql"]:
        check_equal(sorted(node), ["host", "id", "pid", "port"], "keys of a SQL node")
    for node in state["data"]:
        check_equal(sorted(node), ["group", "id", "pid"], "keys of a data node")
    check(os.path.isdir(state["dir"]), f"{state['dir']} is no directory")
    for pid in cluster.everyone().values():
        check(alive(pid), f"process {pid} is not there")


def status_shape(cluster):
    nodes = cluster.status()["nodes"]
    check_equal(sorted(n["id"] for n in nodes), cluster.data_ids(), "ids of data nodes")
    check(all(n["state"] == "up" for n in nodes), f"not all are up: {nodes}")
    check_equal(sum(n["president"] for n in nodes), 1, "presidents")
    check(all(n["primaries"] > 0 for n in nodes), f"a node without primaries: {nodes}")
    code, text = cluster.apus("status")
    check(code == 0 and "president" in text, text)


def main(t):
    with t.case("a cluster starts, describes itself and ends without a trace"):
        with Cluster(t, "plain") as cluster:
            ready_file_shape(cluster)
            wait_until(lambda: status_shape(cluster) is None, 10, "every node is up in the status")
            directory = cluster.describe()["dir"]
        check(not os.path.exists(directory), f"{directory} is left")
        left = [p for p in cluster.home.rglob("*") if p.is_file() and p.name not in ("ready.json", "dev.log")]
        check(not left, f"files are left: {left}")

    with t.case("a port that is taken is replaced"):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with Cluster(t, "taken", port=port) as cluster:
                check(cluster.sql[1] != port, "the taken port was announced")
                code, text = batch("SELECT 1", *cluster.sql)
                check(code == 0, text)

    with t.case("two clusters side by side, two SQL nodes, a directory that is kept"):
        keep = t.directory / "kept"
        with Cluster(t, "one", sql_nodes=2, keep=keep) as one, Cluster(t, "two", data_nodes=1, replicas=1) as two:
            check_equal(len(one.describe()["sql"]), 2, "SQL nodes")
            check_equal(two.data_ids(), [1], "data nodes of a cluster without replicas")
            batch("CREATE DATABASE shared; CREATE TABLE shared.t (id INT PRIMARY KEY)", *one.sql)
            second = one.describe()["sql"][1]
            code, text = batch("INSERT INTO t VALUES (1); SELECT COUNT(*) FROM t", second["host"], second["port"], database="shared")
            check(code == 0 and text.split()[-1] == "1", f"the other SQL node: {text}")
            code, text = batch("SHOW DATABASES LIKE 'shared'", *two.sql)
            check(code == 0 and "shared" not in text, f"the other cluster: {text}")
        check(keep.is_dir(), "the directory of --keep is gone")

    with t.case("four data nodes in two groups"):
        with Cluster(t, "four", data_nodes=4, memory=512) as cluster:
            groups = [n["group"] for n in cluster.describe()["data"]]
            check_equal(len(set(groups)), 2, "groups")
            code, text = batch("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); "
                               f"INSERT INTO d.t VALUES {','.join(f'({i})' for i in range(200))}; SELECT COUNT(*) FROM d.t",
                               *cluster.sql)
            check(code == 0 and text.split()[-1] == "200", text)
            cluster.kill(4)
            code, text = batch("SELECT COUNT(*) FROM d.t", *cluster.sql)
            check(code == 0 and text.split()[-1] == "200", text)

    with t.case("children end when apus dev is killed with -9"):
        cluster = Cluster(t, "killed")
        with cluster:
            pids = cluster.everyone()
            os.kill(cluster.process.pid, signal.SIGKILL)
            cluster.process.wait()
            wait_until(lambda: not any(alive(p) for p in pids.values()), 15, "all children are gone")
            cluster.stop = lambda: None

    with t.case("the management node dies, then a data node: the SQL node decides; both are started again, and the rows are there"):
        with Cluster(t, "orphan", memory=512) as cluster:
            rows = ",".join(f"({i})" for i in range(200))
            code, text = batch(f"CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES {rows}", *cluster.sql)
            check(code == 0, text)
            log = pathlib.Path(cluster.describe()["dir"]) / "data-2.log"
            wait_until(lambda: cluster.status()["sql_arbitrators"] == [1], 20, "the SQL node has met the cluster")
            os.kill(cluster.describe()["mgmt"]["pid"], signal.SIGKILL)
            wait_until(lambda: "SQL node 1 arbitrates" in log.read_text(), 20, "the view names the SQL node")
            cluster.kill(1)
            code, text = batch("UPDATE d.t SET id = 1000 WHERE id = 1", *cluster.sql, seconds=90)
            check(code == 0, f"the half that goes on answers: {text}")
            cluster.restart("mgmt-1")
            code, text = cluster.apus("dev", "restart", "1", seconds=60, ok=False)
            state = next(n["state"] for n in cluster.status()["nodes"] if n["id"] == 1)
            check(code == 0 and state == "up", f"the restart returned and node 1 is {state}: {text}")
            wait_until(lambda: batch("SELECT COUNT(*) FROM d.t", *cluster.sql)[1].split()[-1] == "200", 30, "the rows are there")

    with t.case("a SQL node that dies ends nobody else, and comes back at its port"):
        with Cluster(t, "sql", sql_nodes=2) as cluster:
            first, second = cluster.describe()["sql"]
            address = lambda node: (node["host"], node["port"])  # noqa: E731
            code, text = batch("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (7)", *address(first))
            check(code == 0, text)
            os.kill(first["pid"], signal.SIGKILL)
            wait_until(lambda: not alive(first["pid"]), 10, "the process is gone")
            code, text = batch("SELECT id FROM d.t", *address(second))
            check(code == 0 and text.split()[-1] == "7", f"the other SQL node: {text}")

            def restarted():
                code, text = cluster.apus("dev", "restart", "sql-1", seconds=60, ok=False)
                check(code == 0 and "answers at port" in text, text)
                return True

            wait_until(restarted, 20, "`apus dev` has noticed the death")
            code, text = batch("SELECT id FROM d.t", *address(first))
            check(code == 0 and text.split()[-1] == "7", f"the SQL node that is back: {text}")
            for name, why in [("sql-1", "runs"), ("sql-9", "no SQL node 9"), ("sql-x", "no node id")]:
                code, text = cluster.apus("dev", "restart", name, ok=False)
                check(code != 0 and why in text, f"restart {name}: {text}")
            cluster.check_all_alive()

    with t.case("nodes that cannot form groups are refused with a sentence"):
        code, text = cluster.apus("dev", "--data-nodes=3", "--replicas=2", ok=False)
        check(code != 0 and "3 data nodes" in text, text)


if __name__ == "__main__":
    scenario_main(main)
