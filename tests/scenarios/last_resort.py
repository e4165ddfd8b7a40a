"""What an operator alone may decide: that a cluster whose rows are gone is founded again, that a frozen side goes on, that all ends."""

import json
import os
import pathlib
import signal

from lib.cluster import Cluster
from lib.harness import BINARY, Failure, alive, check, run, scenario_main, spawn, wait_until
from lib.mariadb import batch

LIMIT_SECONDS = (120, 120)


class Roles:
    """One management node and two data nodes, started as an operator starts them, each with a directory of its own."""

    def __init__(self, t, name):
        self.home = t.directory / name
        self.home.mkdir()
        self.processes = {}
        t.cleanup.callback(self.end)

    def start(self, name, *arguments):
        ready = self.home / f"{name}.ready"
        ready.unlink(missing_ok=True)
        with open(self.log(name), "ab") as log:
            command = [BINARY, *arguments, f"--data-dir={self.home / name}", f"--dir={self.home}", f"--ready-file={ready}"]
            process = self.processes[name] = spawn(command, stdout=log, stderr=log)
        wait_until(lambda: ready.exists() or process.poll() is not None, 20, f"{name} is ready")
        check(process.poll() is None, f"{name} ended: {self.text(name)}")
        return json.loads(ready.read_text())

    def start_mgmt(self, *arguments):
        port = getattr(self, "port", 0)
        self.port = self.start("mgmt", "mgmt", f"--listen=127.0.0.1:{port}", *arguments)["port"]

    def start_data(self, node):
        self.start(f"data-{node}", "data", f"--node={node}", f"--mgmt=127.0.0.1:{self.port}", "--memory=64", "--diskless")

    def kill(self, name):
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def log(self, name):
        return self.home / f"{name}.log"

    def text(self, name):
        return self.log(name).read_text(errors="replace")

    def status(self):
        code, text = run([BINARY, "status", "--json", f"--mgmt=127.0.0.1:{self.port}"], ok=False)
        if code != 0:
            raise Failure(text)
        return json.loads(text)

    def is_whole(self):
        status = self.status()
        return status["generation"] > 0 and all(n["state"] == "up" for n in status["nodes"])

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def main(t):
    with t.case("nodes that all died found no empty cluster, until an operator says that the rows are gone"):
        roles = Roles(t, "again")
        roles.start_mgmt()
        for node in (1, 2):
            roles.start_data(node)
        wait_until(roles.is_whole, 30, "both data nodes are up")
        for name in ("data-1", "data-2", "mgmt"):
            roles.kill(name)
        roles.start_mgmt()
        for node in (1, 2):
            roles.start_data(node)
        try:
            for name in ("data-1", "data-2"):
                wait_until(lambda name=name: "--found-again" in roles.text(name), 30, f"{name} says what an operator can do")
        except Failure as failure:
            raise Failure(f"{failure}\n{roles.text('mgmt')}\n{roles.text('data-1')}\n{roles.text('data-2')}") from failure
        check(roles.status()["generation"] == 0, f"a cluster was founded: {roles.status()}")
        roles.kill("mgmt")
        roles.start_mgmt("--found-again")
        wait_until(roles.is_whole, 30, "the cluster is founded again")

    with t.case("a frozen data node goes on by an operator's word; the abandoned one joins again, empty"):
        with Cluster(t, "force", memory=512) as cluster:
            rows = ",".join(f"({i})" for i in range(200))
            code, text = batch(f"CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES {rows}", *cluster.sql)
            check(code == 0, text)
            code, text = cluster.apus("cluster", "resume", "--force", "--confirm=abandon data node 1", ok=False)
            check(code != 0 and "APUS-710" in text, f"a cluster that serves is resumed: {text}")
            log = pathlib.Path(cluster.describe()["dir"]) / "data-2.log"
            os.kill(cluster.describe()["sql"][0]["pid"], signal.SIGSTOP)  # or it would decide
            os.kill(cluster.describe()["mgmt"]["pid"], signal.SIGKILL)
            wait_until(lambda: "nobody arbitrates" in log.read_text(), 20, "the view names a tie-breaker")
            cluster.kill(1)
            wait_until(lambda: "frozen:" in log.read_text(), 20, "node 2 is frozen")
            cluster.restart("mgmt-1")
            wait_until(lambda: any(n["frozen"] for n in cluster.status()["nodes"]), 20, "the status knows it")
            code, text = cluster.apus("cluster", "resume", ok=False)
            check(code != 0 and "--force" in text, text)
            code, text = cluster.apus("cluster", "resume", "--force", "--confirm=abandon data node 2", ok=False)
            check(code != 0 and "nothing was done" in text and "acknowledged since" in text, text)
            for typed in ("", "yes\n", "abandon data node 2\n"):
                code, text = cluster.apus("cluster", "resume", "--force", ok=False, stdin=typed)
                check(code != 0 and 'Type "abandon data node 1"' in text and "nothing was done" in text, f"{typed!r}: {text}")
            code, text = run([BINARY, "cluster", "resume", "--force", f"--mgmt={cluster.mgmt}",
                              f"--node-secret={cluster.secret_file('client')}"], ok=False)
            check(code != 0, f"the client secret is enough: {text}")
            code, text = cluster.apus("cluster", "resume", "--force", ok=False, stdin="abandon data node 1\n")
            check(code == 0, text)
            os.kill(cluster.describe()["sql"][0]["pid"], signal.SIGCONT)
            wait_until(lambda: batch("SELECT COUNT(*) FROM d.t", *cluster.sql)[1].split()[-1] == "200", 30, "the rows are there")
            code, text = batch("INSERT INTO d.t VALUES (1000)", *cluster.sql, seconds=60)
            check(code == 0, text)
            code, text = cluster.apus("dev", "restart", "1", seconds=60, ok=False)
            check(code == 0, f"the abandoned node joins: {text}\n{cluster.node_logs()}")
            cluster.kill(2)
            wait_until(lambda: batch("SELECT COUNT(*) FROM d.t", *cluster.sql)[1].split()[-1] == "201", 30, "it has copied all rows")

    with t.case("an operator ends all data nodes; started again they found the cluster anew"):
        with Cluster(t, "stop", memory=512) as cluster:
            code, text = cluster.apus("cluster", "stop", "--confirm=yes", ok=False)
            check(code != 0 and "nothing was done" in text and "every row is lost" in text, text)
            cluster.check_all_alive()
            pids = [cluster.data_pid(node) for node in cluster.data_ids()]
            code, text = cluster.apus("cluster", "stop", "--confirm=lose all rows", ok=False)
            check(code == 0 and "data nodes 1 2 ended" in text, text)
            wait_until(lambda: not any(alive(pid) for pid in pids), 20, "their processes are gone")
            for node in (1, 2):
                cluster.restart(node)
            cluster.wait_up(1)
            cluster.wait_up(2)


if __name__ == "__main__":
    scenario_main(main)
