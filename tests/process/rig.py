"""A cluster whose every process has a host of its own (see network), for breaking: killed, stopped, cut off, started again."""

import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import time

import pymysql

from lib.harness import BINARY, Failure, alive, check, end, run, tail, wait_until

from . import network
from .proxy import Proxy

PORT = 7000
SQL_PORT = 4000
START_SECONDS = 60
WHOLE_SECONDS = 30


class ClusterLost(Failure):
    """No data node is left of those that held the rows; whoever looks for these afterwards finds nothing."""


class Node:
    """A process on its host; started as often as needed."""

    def __init__(self, rig, kind, number, address):
        self.rig, self.kind, self.number = rig, kind, number
        self.name = f"{kind}{number}"
        self.host = rig.network.host(self.name, address)
        self.port = SQL_PORT if kind == "sql" else PORT
        self.address = f"{self.host.address}:{self.port}"
        self.log = rig.directory / f"{self.name}.log"
        self.ready = rig.directory / f"{self.name}.ready"
        self.process = None

    def start(self, arguments):
        self.ready.unlink(missing_ok=True)
        command = [BINARY, self.kind, f"--listen={self.address}", f"--ready-file={self.ready}", *arguments]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(c) for c in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: network.become_child_of(self.host),
            )

    @property
    def pid(self):
        return self.process.pid

    def signal(self, number):
        os.kill(self.pid, number)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def is_ready(self):
        check(self.is_running(), f"{self.name} ended with {self.process.poll()}:\n{self.tail()}")
        return self.ready.exists()

    def tail(self):
        return tail(self.log.read_text(errors="replace"), 10)

    def life(self):
        """Distinguishes starts of this node: one that was removed starts itself again in the same process, and says so."""
        return self.pid, self.log.read_text(errors="replace").count("apus: stopped:")

    def last_said(self, *words):
        """The last line of the log with one of these words; empty if there is none."""
        said = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if any(w in line for w in words)]
        return said[-1] if said else ""

    def why_ended(self):
        """What the process that ended said of it last, and what the others did."""
        own = self.last_said("stopped:", "stops:", "panicked") or "said nothing"
        others = {n.last_said(f"holds node {self.number} for failed:") for n in self.rig.data.values() if n is not self}
        return "; ".join([own, *sorted(others - {""})])


class Rig:
    """`data_nodes` in groups of `replicas`, `mgmt_nodes`, `sql_nodes`; entered in a `with`."""

    def __init__(self, directory, data_nodes=4, replicas=2, sql_nodes=2, memory=512, mgmt_nodes=1, proxied=False):
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.memory, self.replicas, self.groups = memory, replicas, data_nodes // replicas
        self.network = network.Network()
        self.proxied, self.proxy = proxied, None
        self.cluster = f"{random.getrandbits(63) | 1:x}"
        self.counts = (mgmt_nodes, data_nodes, sql_nodes)
        self.mgmt, self.data, self.sql = [], {}, []
        self.arbitrator = None
        # Hosts of their own are beyond loopback, where everybody has to prove who he is.
        self.password, self.password_file = secrets.token_hex(8), self.directory / "root.password"
        self.secrets = {kind: self.directory / f"{kind}.secret" for kind in ("node", "client")}

    def __enter__(self):
        for kind, path in self.secrets.items():
            path.unlink(missing_ok=True)
            run([BINARY, "secret", kind, path], seconds=20)
        self.password_file.unlink(missing_ok=True)
        self.password_file.touch(0o600)
        self.password_file.write_text(f"{self.password}\n")
        self.network.__enter__()
        try:
            mgmt_nodes, data_nodes, sql_nodes = self.counts
            self.mgmt = [Node(self, "mgmt", n + 1, 101 + n) for n in range(mgmt_nodes)]
            self.data = {n: Node(self, "data", n, n) for n in range(1, data_nodes + 1)}
            self.sql = [Node(self, "sql", n + 1, 201 + n) for n in range(sql_nodes)]
            if self.proxied:
                self.proxy = Proxy(self)
            for node in self.everyone():
                self.start(node)
                if node.kind == "mgmt":
                    wait_until(node.is_ready, START_SECONDS, f"{node.name} is ready")
            for node in self.everyone():
                wait_until(node.is_ready, START_SECONDS, f"{node.name} is ready")
            self.wait_whole()
        except BaseException:
            self.stop()
            raise
        return self

    def everyone(self):
        return [*self.mgmt, *self.data.values(), *self.sql]

    @property
    def mgmt_addresses(self):
        return ",".join(n.address for n in self.mgmt)

    def start(self, node):
        several = [f"--node={node.number}", f"--mgmt-nodes={len(self.mgmt)}", f"--cluster={self.cluster}"] if len(self.mgmt) > 1 else []
        client = f"--client-secret={self.secrets['client']}"
        both = [f"--node-secret={self.secrets['node']}", client, f"--data-dir={self.directory / node.name}"]
        arguments = {
            "mgmt": [*both, f"--groups={self.groups}", f"--replicas={self.replicas}", f"--dir={self.directory}", *several],
            "data": [*both, f"--node={node.number}", f"--mgmt={self.mgmt_addresses}", f"--memory={self.memory}", f"--dir={self.directory}"],
            "sql": [f"--mgmt={self.mgmt_addresses}", client, f"--root-password-file={self.password_file}"],
        }
        node.start(arguments[node.kind])

    @contextlib.contextmanager
    def connect(self):
        """A cursor at the first SQL node."""
        node = self.sql[0]
        host, port = node.address.rsplit(":", 1)
        connection = pymysql.connect(host=host, port=int(port), user="root", password=self.password, autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            yield cursor

    def status(self):
        """What a management node says; a Failure if none answers. One that a fault is about to be done to is asked last."""
        asked = ",".join(n.address for n in sorted(self.mgmt, key=lambda n: n is self.arbitrator))
        code, text = run([BINARY, "status", "--json", f"--mgmt={asked}", f"--client-secret={self.secrets['client']}"], seconds=20, ok=False)
        check(code == 0, f"apus status: {text.strip()}")
        return json.loads(text)

    def states(self):
        return {n["id"]: n["state"] for n in self.status()["nodes"]}

    def president(self):
        return next(n["id"] for n in self.status()["nodes"] if n["president"])

    def find_arbitrator(self):
        number = self.status()["arbitrator"]
        self.arbitrator = next((n for n in self.mgmt if n.number == number), self.mgmt[0])
        return self.arbitrator

    def wait_whole(self, seconds=WHOLE_SECONDS):
        """Waits until every process runs and every data node is a full member; starts again who ended. Seconds it took."""
        begin = time.monotonic()

        def whole():
            for node in self.everyone():
                if not node.is_running():
                    self.start(node)
            states = self.states()
            left = [n for n in self.data if states.get(n) != "up"] + [n.name for n in self.sql if not n.ready.exists()]
            check(not left, f"not up: {left}")
            return True

        wait_until(whole, seconds, "the cluster is whole")
        return time.monotonic() - begin

    def mend(self):
        """Undoes every fault but deaths."""
        for node in self.everyone():
            if node.is_running():
                node.signal(signal.SIGCONT)
        self.network.heal()
        if self.proxy:
            self.proxy.tell("heal")

    def lives(self):
        """Which starts of the data nodes run now."""
        return {n: node.life() for n, node in self.data.items()}

    def ended_since(self, lives):
        """Data nodes that have ended since, whether or not they run again."""
        return [node for n, node in self.data.items() if node.life() != lives[n] or not node.is_running()]

    def strays(self, lives, touched=(), states=None):
        """Data nodes that no fault was done to and that were removed all the same, with what they said: {name: reason}."""
        found = {node.name: node.why_ended() for node in self.ended_since(lives)}
        for n, state in (states or {}).items():
            if state != "up" and n in self.data:
                found.setdefault(self.data[n].name, f"is {state}; {self.data[n].why_ended()}")
        return {name: reason for name, reason in found.items() if name not in touched}

    def check_not_lost(self, lives):
        """As long as one data node of then runs, the cluster never began anew."""
        ended = self.ended_since(lives)
        if len(ended) == len(self.data):
            reasons = "; ".join(f"{node.name} {node.last_said('stopped:', 'stops:', 'panicked') or 'said nothing'}" for node in ended)
            raise ClusterLost(f"the cluster was lost as a whole, its rows with it: {reasons}")

    def logs(self):
        """The ends of all nodes' logs, for people."""
        return "\n".join(f"    {node.name}: {node.tail()}" for node in self.everyone())

    def kill(self, node):
        node.signal(signal.SIGKILL)
        node.process.wait(10)

    def check_no_crash(self):
        """A node may stop because the cluster told it so, and never because it found itself broken."""
        found = sorted(self.directory.glob("*crash*"))
        check(not found, f"crash reports: {', '.join(p.name for p in found)}\n{found[0].read_text(errors='replace')[:2000] if found else ''}")

    def stop(self):
        """SIGTERM to all, SIGKILL to who is left; nothing may be left."""
        for node in self.everyone():
            if node.is_running():
                node.signal(signal.SIGCONT)
                node.process.terminate()
                node.process.terminate()  # a last full copy refuses the first
        for node in self.everyone():
            if node.process is not None:
                end(node.process, seconds=10)
        if self.proxy:
            self.proxy.end()
        left = [node.name for node in self.everyone() if node.process is not None and alive(node.pid)]
        self.network.close()
        check(not left, f"left behind: {left}")

    def __exit__(self, kind, value, trace):
        if kind is not None and issubclass(kind, Failure):
            print(self.logs(), flush=True)
        self.stop()
