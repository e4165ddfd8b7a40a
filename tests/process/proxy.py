"""`apus-chaos` between the data nodes of a rig: each connection that one makes to another is led through it by the dialler's own
packet filter, so that the nodes know nothing of it."""

import subprocess

from lib.harness import CHAOS, Failure, die_with_parent, end

from .network import HUB

FIRST_PORT = 8000


class Proxy:
    def __init__(self, rig):
        self.log = open(rig.directory / "chaos.log", "wb")
        self.process = subprocess.Popen(
            [str(CHAOS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, preexec_fn=die_with_parent
        )
        port = FIRST_PORT
        for a in rig.data.values():
            a.host.nft("add table ip way; add chain ip way out { type nat hook output priority -100; }")
            for b in rig.data.values():
                if a is not b:
                    port += 1
                    self.tell(f"link {a.name} {b.name} {HUB}:{port} {b.address}")
                    a.host.nft(f"add rule ip way out ip daddr {b.host.address} tcp dport {b.port} dnat to {HUB}:{port}")

    def tell(self, command):
        """The proxy's answer without its ok."""
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().decode().strip()
        except BrokenPipeError:
            answer = ""
        word, _, rest = answer.partition(" ")
        if word != "ok":
            raise Failure(f"the proxy answered {answer!r} to {command!r}")
        return rest

    def end(self):
        self.process.stdin.close()
        end(self.process)
        self.process.stdout.close()
        self.log.close()
