"""What an operator alone may decide: that a cluster whose rows are gone is founded again."""

import json
import signal

from lib.harness import BINARY, Failure, check, run, scenario_main, spawn, wait_until

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
        self.start(f"data-{node}", "data", f"--node={node}", f"--mgmt=127.0.0.1:{self.port}", "--memory=64")

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
        for name in ("data-1", "data-2"):
            wait_until(lambda name=name: "--found-again" in roles.text(name), 30, f"{name} says what an operator can do")
        check(roles.status()["generation"] == 0, f"a cluster was founded: {roles.status()}")
        roles.kill("mgmt")
        roles.start_mgmt("--found-again")
        wait_until(roles.is_whole, 30, "the cluster is founded again")


if __name__ == "__main__":
    scenario_main(main)
