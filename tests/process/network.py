"""Hosts on one machine: a network namespace each, joined by a bridge, with cables that can be cut.

    +-- hub (we, probe, proxy) ----------- bridge 10.77.0.254 --+
    |        |               |                  |               |
    data 1   data 2 ...      mgmt 1             sql 1 ...       (each: namespace, veth pair, address of its own)

Namespaces have no names: they live as long as somebody holds their file descriptor or runs in them, so nothing is left behind
even when this process is killed. Needs root (CAP_NET_ADMIN). What works on this kind of machine and what does not is told in
docs/reliability.md.

A cut is made where packets arrive, by nftables, or by taking the cable's far end down. Nobody is told: connections stay up and
fall silent, as with a cable that is really cut.
"""

import ctypes
import os
import signal
import threading

from lib.harness import Failure, run

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
HUB = "10.77.0.254"


def _call(function, *arguments):
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter(namespace):
    """Moves the calling thread into a namespace."""
    _call(_LIBC.setns, namespace, _CLONE_NEWNET)


def _new_namespace():
    """File descriptor of a new network namespace."""
    made = []

    def make():
        try:
            _call(_LIBC.unshare, _CLONE_NEWNET)
            made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise Failure(f"no network namespace: {made[0]} (root is needed)")
    return made[0]


def become_child_of(host):
    """What a node's process does first: it lives on its host, and dies with us even where it is stopped."""
    enter(host.namespace)
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Host:
    """One machine of the network."""

    def __init__(self, network, name, address):
        self.network, self.name, self.address = network, name, address
        self.cable = f"v-{name}"
        self.namespace = _new_namespace()
        end = f"e-{name}"
        us = f"/proc/{os.getpid()}/fd/{self.namespace}"
        network.ip(f"link add {self.cable} type veth peer name {end} netns {us}")
        network.ip(f"link set {self.cable} master br0 up")
        self.ip(f"address add {address}/24 dev {end}")
        self.ip(f"link set {end} up")
        self.ip("link set lo up")
        self.nft("add table ip cut; add chain ip cut arrive { type filter hook input priority 0; }")

    def run(self, command, stdin=None):
        return run(command, seconds=20, stdin=stdin, before=lambda: enter(self.namespace))[1]

    def ip(self, arguments):
        return self.run(["ip", *arguments.split()])

    def nft(self, script):
        return self.run(["nft", "-f", "-"], stdin=script)

    def unplug(self):
        """Cuts the cable: nothing in, nothing out, and nobody is told."""
        self.network.ip(f"link set {self.cable} down")

    def plug(self):
        self.network.ip(f"link set {self.cable} up")

    def deaf_to(self, others):
        """Packets from the others no longer arrive here. Those that we send still arrive there."""
        addresses = ", ".join(h.address for h in others)
        self.nft(f"add rule ip cut arrive ip saddr {{ {addresses} }} drop")

    def heal(self):
        self.nft("flush chain ip cut arrive")
        self.plug()


class Network:
    """Entered in a `with`; meanwhile this process lives in the hub."""

    def __init__(self):
        self.hosts = {}
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.hub = _new_namespace()

    def __enter__(self):
        enter(self.hub)
        try:
            self.ip("link set lo up")
            self.ip("link add br0 type bridge forward_delay 0")
            self.ip(f"address add {HUB}/24 dev br0")
            self.ip("link set br0 up")
        except BaseException:
            self.close()
            raise
        return self

    def ip(self, arguments):
        return run(["ip", *arguments.split()], seconds=20)[1]

    def host(self, name, number):
        host = Host(self, name, f"10.77.0.{number}")
        self.hosts[name] = host
        return host

    def part(self, *sides):
        """Hosts of different sides no longer hear each other; hosts of no side hear all."""
        for side in sides:
            others = [h for other in sides if other is not side for h in other]
            for host in side:
                host.deaf_to(others)

    def heal(self):
        for host in self.hosts.values():
            host.heal()

    def close(self):
        enter(self._home)
        for host in self.hosts.values():
            os.close(host.namespace)
        self.hosts.clear()
        os.close(self.hub)
        os.close(self._home)

    def __exit__(self, *_):
        self.close()
