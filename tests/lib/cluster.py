"""One `apus dev` of a test's own: started, asked, hurt, ended, and checked to leave nothing."""

import json
import os
import pathlib
import signal
import time

from .harness import BINARY, Failure, alive, check, end, rss_kib, run, spawn, tail, wait_until

START_SECONDS = 60
REJOIN_SECONDS = 120


class Cluster:
    """Entered in a `with`. Everything it makes lies below the scenario's directory, which serves as its TMPDIR, so that
    `apus status` and `apus dev restart` find this cluster and no other."""

    def __init__(self, scenario, name="c", meanwhile=None, binary=BINARY, **options):
        """`meanwhile` is called with this cluster as soon as its processes are to start; `binary` is another build of apus."""
        self.scenario, self.meanwhile, self.binary = scenario, meanwhile, binary
        self.home = scenario.directory / name
        self.home.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.home)}
        self.environment.pop("APUS_DEV_DIR", None)  # names another cluster
        self.ready_file = self.home / "ready.json"
        self.log = self.home / "dev.log"
        options.setdefault("port", 0)
        self.start_seconds = START_SECONDS
        self.arguments = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        self.pids = set()

    def __enter__(self):
        with open(self.log, "wb") as log:
            command = [self.binary, "dev", f"--ready-file={self.ready_file}", *self.arguments]
            # A group of its own, as a shell gives to what it runs.
            self.process = spawn(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
        try:
            if self.meanwhile:
                self.meanwhile(self)
            wait_until(self._ready, self.start_seconds, "apus dev is ready")
        except BaseException:
            end(self.process)
            raise
        return self

    def _ready(self):
        if self.process.poll() is not None:
            raise SystemExit(f"apus dev ended with {self.process.returncode}:\n{self.logs()}")
        return self.ready_file.exists() and self.describe()

    def logs(self):
        return tail(self.log.read_text(errors="replace"))

    def node_logs(self):
        """The ends of all nodes' logs, for whoever has to explain a failure."""
        logs = sorted(pathlib.Path(self.describe()["dir"]).glob("*.log"))
        return "\n".join(f"--- {log.name}\n{tail(log.read_text(errors='replace'), 15)}" for log in logs)

    def log_of(self, name):
        """The log of one process, as its name is in the ready file's directory."""
        return (pathlib.Path(self.describe()["dir"]) / f"{name}.log").read_text(errors="replace")

    def describe(self):
        """The ready file as it stands now."""
        state = json.loads(self.ready_file.read_text())
        self.pids |= {node["pid"] for node in [state["mgmt"], *state["sql"], *state["data"]]}
        return state

    @property
    def sql(self):
        """(host, port) of the first SQL node."""
        node = self.describe()["sql"][0]
        return node["host"], node["port"]

    @property
    def mgmt(self):
        node = self.describe()["mgmt"]
        return f"{node['host']}:{node['port']}"

    def secret_file(self, kind):
        """Where the `node` or the `client` secret of this cluster lies."""
        return pathlib.Path(self.describe()["dir"]) / f"{kind}.secret"

    def data_pid(self, node):
        return next(n["pid"] for n in self.describe()["data"] if n["id"] == node)

    def data_ids(self):
        return [n["id"] for n in self.describe()["data"]]

    def apus(self, *arguments, seconds=60, ok=True, stdin=None):
        """Runs a verb of the binary against this cluster; (return code, output)."""
        return run([BINARY, *arguments], seconds=seconds, stdin=stdin, env=self.environment, ok=ok)

    def status(self):
        code, text = self.apus("status", "--json", seconds=20, ok=False)
        if code != 0:
            raise Failure(f"apus status: {text.strip()}")
        return json.loads(text)

    def wait_up(self, node, seconds=REJOIN_SECONDS):
        """Waits until a data node is a full member."""

        def is_up():
            return any(n["id"] == node and n["state"] == "up" for n in self.status()["nodes"])

        start = time.monotonic()
        wait_until(is_up, seconds, f"data node {node} is up")
        return time.monotonic() - start

    def kill_each(self):
        """Kills one data node after the other with -9, each when the one before is whole again; yields those that are back."""
        for node in self.data_ids():
            self.kill(node)
            self.wait_down(node)
            self.restart(node)
            self.wait_up(node)
            yield node

    def wait_down(self, node, seconds=30):
        """Waits until the cluster has removed a data node."""

        def is_down():
            return all(n["id"] != node or n["state"] == "down" for n in self.status()["nodes"])

        wait_until(is_down, seconds, f"data node {node} is removed")

    def kill(self, node):
        pid = self.data_pid(node)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), 10, f"process {pid} is gone")

    def restart(self, node):
        """Restarts a dead data node. `apus dev` may notice the death a moment after us."""

        def restarted():
            code, text = self.apus("dev", "restart", "--no-wait", str(node), seconds=60, ok=False)
            if code != 0:
                raise Failure(text.strip())
            return True

        wait_until(restarted, 20, f"data node {node} is started again")
        self.describe()

    def more_sql(self, name="more", *options):
        """A SQL node beside those of `apus dev`, which ends with one of its own: (process, where)."""
        ready = self.home / f"{name}.ready"
        command = [self.binary, "sql", f"--mgmt={self.mgmt}", f"--client-secret={self.secret_file('client')}", "--listen=127.0.0.1:0", f"--ready-file={ready}"]
        with open(self.home / f"{name}.log", "wb") as log:
            process = spawn([*command, *options], stdout=log, stderr=log)
        self.scenario.cleanup.callback(end, process)
        wait_until(ready.exists, 20, f"the SQL node {name} is ready")
        return process, json.loads(ready.read_text())

    def everyone(self):
        """{name: pid} of all processes of the cluster as started last."""
        state = self.describe()
        named = {"mgmt": state["mgmt"]["pid"]}
        named |= {f"sql {n['id']}": n["pid"] for n in state["sql"]}
        return named | {f"data {n['id']}": n["pid"] for n in state["data"]}

    def check_all_alive(self, wanted=None):
        for name, pid in (wanted or self.everyone()).items():
            check(alive(pid), f"{name} (process {pid}) is gone:\n{self.logs()}")

    def memory(self):
        return {name: rss_kib(pid) for name, pid in self.everyone().items()}

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.scenario.say(f"the last lines of apus dev:\n{self.logs()}")
        self.stop()

    def stop(self):
        """SIGTERM, then nothing may be left: no process, no directory."""
        if self.process.poll() is None:
            self.describe()
        code = end(self.process, seconds=20)
        left = [pid for pid in self.pids if alive(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        check(code == 0, f"apus dev ended with {code}:\n{self.logs()}")
        check(not left, f"apus dev left processes {left} behind")
