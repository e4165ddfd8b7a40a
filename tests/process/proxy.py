"""`apus-chaos` between the data nodes of a rig: each connection that one makes to another is led through it by the dialler's own
packet filter, so that the nodes know nothing of it."""

from lib.harness import CHAOS, Tool

from .network import HUB

FIRST_PORT = 8000


class Proxy(Tool):
    def __init__(self, rig):
        super().__init__([CHAOS], rig.directory / "chaos.log")
        port = FIRST_PORT
        for a in rig.data.values():
            a.host.nft("add table ip way; add chain ip way out { type nat hook output priority -100; }")
            for b in rig.data.values():
                if a is not b:
                    port += 1
                    self.tell(f"link {a.name} {b.name} {HUB}:{port} {b.address}")
                    a.host.nft(f"add rule ip way out ip daddr {b.host.address} tcp dport {b.port} dnat to {HUB}:{port}")
