"""Strangers on every port: random bytes and valid packets with flipped, cut, doubled and lying bytes.

Nothing may die, nothing may leak, and whoever behaves is served as before. Inputs come from a fixed seed (APUS_FUZZ_SEED).
"""

import contextlib
import os
import random
import socket
import ssl
import struct
import zlib

from lib import hello
from lib.cluster import Cluster
from lib.harness import FULL, check, check_equal, scenario_main, wait_until
from lib.mariadb import batch

LIMIT_SECONDS = (300, 3600)
COUNT = 500_000 if FULL else 10_000  # of each kind: FULL=1 is a million inputs per port
PIPELINED = 50  # inputs per connection before it is given up and made again
GROWTH_MIB_MAX = 64

KINDS = range(240)  # all of signal/envelope.rs, and numbers that are none


def opening(rng):
    """A frame of the hello, good but for its proof."""
    body = hello.hello_body(rng.choice(range(1, 7)), node=rng.choice([0, 1, 2, 0x4001]), cluster=rng.choice([0, 7]), nonce=rng.randbytes(32))
    return rng.choice([hello.frame(hello.HELLO_REQ, body), hello.frame(hello.PROOF_CONF, rng.randbytes(32)),
                       hello.frame(hello.PROOF_REQ, rng.randbytes(32) + body), hello.frame(hello.HELLO_CONF, body)])


def signal(rng):
    """A well-formed frame of a random kind to a random block, with a body that is plausible for few of them."""
    to = rng.choice([1, 2, 0x4001, 0x8001]) << 16 | rng.randrange(10) << 8 | rng.choice([0, 0, 0, 1, 255])
    words = b"".join(struct.pack("<I", rng.choice([0, 1, 2, 10, 0xFFFF, 0xFFFFFFFF, rng.getrandbits(32)]))
                     for _ in range(rng.randrange(40)))
    return hello.frame(rng.choice(KINDS), words, to, sender=0xFFFF0900, epoch=rng.choice([0, 1, 1000]))


def sql_packet(payload, sequence=0):
    return struct.pack("<I", len(payload))[:3] + bytes([sequence & 255]) + payload


CAPABILITIES = 0x00000200 | 0x00008000 | 0x00080000 | 0x00000001  # 4.1, secure connection, plugin, long password


def login(more=0, plugin=b"mysql_native_password", proof=b""):
    answer = struct.pack("<IIB23x", CAPABILITIES | more, 1 << 24, 45) + b"root\0" + bytes([len(proof)]) + proof + plugin + b"\0"
    return sql_packet(answer, 1)


TLS = ssl.create_default_context()


def encrypted(rng):
    """The request for TLS and what a client says first in it, and at times more than that."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        TLS.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    request = sql_packet(struct.pack("<IIB23x", CAPABILITIES | 0x800, 1 << 24, 45), 1)
    return request + outgoing.read() + rng.choice([b"", b"", login(0x800), rng.randbytes(40)])


def password(rng):
    """The proof of caching_sha2_password, then the question for the server's key, or a password that is not encrypted with it."""
    begin = login(plugin=b"caching_sha2_password", proof=rng.randbytes(32))
    return begin + rng.choice([sql_packet(b"\x02", 3), sql_packet(rng.randbytes(256), 3), sql_packet(b"secret\0", 3)])


COMMANDS = [
    b"\x03SELECT 1", b"\x03SELECT id, v FROM fuzz.t WHERE id = 5", b"\x03INSERT INTO fuzz.t VALUES (NULL, 'x')",
    b"\x03UPDATE fuzz.t SET v = 'y' WHERE id IN (1, 2, 3)", b"\x03BEGIN", b"\x03ROLLBACK", b"\x03SHOW TABLES", b"\x02fuzz", b"\x0e",
    b"\x16SELECT v FROM fuzz.t WHERE id = ? AND v > ?", b"\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x03\0\xfd\0\x05\0\0\0\x01a",
    b"\x18\x01\0\0\0\x01\0some text", b"\x1a\x01\0\0\0", b"\x19\x01\0\0\0", b"\x04t\0%", b"\x1f", b"\x1b\0\0", b"\x09",
    b"\x11root\0\0fuzz\0", b"\x03SELECT 1; SELECT 2", b"\x1c\x01\0\0\0\x05\0\0\0", b"\x0c\xff\xff\xff\x7f",
]


def compressed(rng, data):
    """A compressed packet, at times with another length than it has, or as a bomb."""
    data = rng.choice([data, data, data * rng.randrange(1, 40), bytes(rng.choice([100, 1 << 16, 1 << 22]))])
    packed, size = zlib.compress(data), rng.choice([len(data)] * 4 + [0, 1, len(data) + 1, 0xFFFFFF])
    return struct.pack("<I", len(packed))[:3] + bytes([rng.choice([0, 0, 1, 255])]) + struct.pack("<I", size & 0xFFFFFF)[:3] + packed


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        if not data:
            break
        how, at = rng.randrange(6), rng.randrange(len(data))
        if how == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[at] = rng.choice([0, 1, 127, 128, 250, 251, 252, 253, 254, 255])
        elif how == 2:
            del data[at:at + rng.randrange(1, 9)]
        elif how == 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif how == 4:
            data[at:at] = data[at:at + 16]
        else:
            del data[at:]
    return bytes(data)


class Target:
    """One port: how to open a conversation there, and what a valid packet is. With a secret the conversation is begun by a proof, for
    what follows it is decoded for nobody else."""

    def __init__(self, name, address, prologue, packet, secret=None, pipelined=PIPELINED):
        self.name, self.address, self.prologue, self.packet, self.secret = name, address, prologue, packet, secret
        self.pipelined = pipelined

    def open(self, rng):
        if rng.random() < 0.2:  # begins with garbage at once
            return socket.create_connection(self.address, timeout=10)
        if self.secret:
            return hello.greet(self.address, self.secret)
        connection = socket.create_connection(self.address, timeout=10)
        self.try_send(connection, self.prologue)
        return connection

    def bombard(self, rng, inputs):
        """Sends all inputs, many per connection; reads and drops what comes back."""
        connection, sent, refused = None, 0, 0
        for number, data in enumerate(inputs):
            if connection is None or number % self.pipelined == 0:
                self.close(connection)
                connection = self.open(rng)
            if self.try_send(connection, data):
                sent += 1
            else:
                refused += 1
                self.close(connection)
                connection = None
        self.close(connection)
        return sent, refused

    @staticmethod
    def try_send(connection, data):
        """Whether the peer still listens. Never waits long: a peer may rightly wait for the rest of a packet."""
        try:
            connection.settimeout(2)
            connection.sendall(data)
            connection.setblocking(False)
            while connection.recv(1 << 16):
                pass
            return False
        except (BlockingIOError, TimeoutError):
            return True
        except OSError:
            return False

    @staticmethod
    def close(connection):
        if connection is not None:
            connection.close()


def main(t):
    rng = random.Random(int(os.environ.get("APUS_FUZZ_SEED", "20261121")))
    with Cluster(t) as cluster:
        host, port = cluster.sql
        _, text = batch("CREATE DATABASE fuzz; CREATE TABLE fuzz.t (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(100)); "
                        "INSERT INTO fuzz.t (v) VALUES ('a'), ('b'), ('c')", host, port)
        check("ERROR" not in text, text)
        nodes = wait_until(lambda: [n for n in cluster.status()["nodes"] if n["address"]], 20, "data nodes tell their addresses")
        targets = [Target("SQL port", (host, port), login(), lambda: sql_packet(rng.choice(COMMANDS))),
                   Target("SQL port, compressed", (host, port), login(0x20), lambda: compressed(rng, sql_packet(rng.choice(COMMANDS)))),
                   Target("SQL port, asked for TLS", (host, port), b"", lambda: encrypted(rng), pipelined=1),
                   Target("SQL port, amid the login", (host, port), b"", lambda: password(rng), pipelined=1)]
        secret = hello.read_secret(cluster.secret_file("client"))
        ports = [(f"port of data node {n['id']}", n["address"]) for n in nodes] + [("port of the management node", cluster.mgmt)]
        for name, address in ports:
            address = (address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1]))
            targets.append(Target(f"{name}, behind the hello", address, b"", lambda: signal(rng), secret))
            targets.append(Target(f"{name}, before it", address, b"", lambda: opening(rng)))
        started = cluster.everyone()
        # A first round brings buffers to the size they stay at.
        for target in targets:
            target.bombard(rng, (mutate(rng, target.packet()) for _ in range(COUNT // 10)))
        before = cluster.memory()
        for target in targets:
            with t.case(f"{COUNT} random byte strings on the {target.name}"):
                sent, refused = target.bombard(rng, (rng.randbytes(rng.randrange(1, 200)) for _ in range(COUNT)))
                cluster.check_all_alive(started)
                t.say(f"{target.name}: {sent} taken, {refused} refused by a closed connection")
            with t.case(f"{COUNT} mutated valid packets on the {target.name}"):
                sent, refused = target.bombard(rng, (mutate(rng, target.packet()) for _ in range(COUNT)))
                cluster.check_all_alive(started)
                t.say(f"{target.name}: {sent} taken, {refused} refused by a closed connection")
        with t.case("the same processes serve as before"):
            check_equal(cluster.everyone(), started, "processes")
            cluster.check_all_alive(started)
            check(all(n["state"] == "up" for n in cluster.status()["nodes"]), "a data node was removed")
            code, text = batch("INSERT INTO fuzz.t (v) VALUES ('after'); SELECT COUNT(*) FROM fuzz.t WHERE v = 'after'", host, port)
            check(code == 0 and text.split()[-1] == "1", text)
        with t.case(f"no process grew by more than {GROWTH_MIB_MAX} MiB"):

            def growth():
                return {name: (kib - before[name]) / 1024 for name, kib in cluster.memory().items()}

            # The server may be about to end the last thousands of connections, and has their buffers until then.
            try:
                wait_until(lambda: max(growth().values()) <= GROWTH_MIB_MAX, 20, "memory is given back")
            finally:
                t.say("growth in MiB: " + ", ".join(f"{name} {mib:.1f}" for name, mib in growth().items()))


if __name__ == "__main__":
    scenario_main(main)
