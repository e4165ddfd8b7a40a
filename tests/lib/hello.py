"""The hello of a link (crates/auth) written a second time, from its description and not from its code: for strangers and their tests."""

import hashlib
import hmac
import os
import pathlib
import socket
import struct

from .harness import Failure

DATA, MGMT, CLIENT, OPERATOR = 1, 2, 3, 4
HELLO_REQ, HELLO_CONF, HELLO_REF, PROOF_REQ, PROOF_CONF = 1, 2, 3, 7, 8
PROTOCOL_VERSION = 14
ENVELOPE = 32
NOT_PROVEN, ROLE_NOT_PROVEN, WRONG_CLUSTER = 706, 707, 704
NO_SECRET = bytes(32)


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def frame(kind, body, to=0, sender=0, epoch=0):
    """length, kind, version, flags, to, from, epoch, trace and generation, body: see apus_signal::envelope."""
    return struct.pack("<IHBBIIQQ", ENVELOPE + len(body), kind, PROTOCOL_VERSION, 0, to, sender, epoch, 0) + body


def block(node, number, instance=0):
    return node << 16 | number << 8 | instance


def hello_body(role, node=0, incarnation=7, cluster=0, worker=0, workers=0, nonce=None):
    """A `Hello` as protobuf, fields in order; fixed64 fields and numbers that are 0 are left out as protobuf does."""
    out = b"\x09APUSLINK\x10" + varint(role)
    out += b"\x18" + varint(node) if node else b""
    out += b"\x21" + struct.pack("<Q", incarnation) if incarnation else b""
    out += b"\x29" + struct.pack("<Q", cluster) if cluster else b""
    out += b"\x38" + varint(worker) if worker else b""
    out += b"\x40" + varint(workers) if workers else b""
    nonce = os.urandom(32) if nonce is None else nonce
    return out + b"\x52" + varint(len(nonce)) + nonce


def proof(secret, direction, request, answer):
    text = b"apus link hello" + bytes([PROTOCOL_VERSION]) + direction
    for part in (request, answer):
        text += struct.pack("<Q", len(part)) + part
    return hmac.new(secret, text, hashlib.sha256).digest()


def read_secret(path):
    """The 32 bytes of a secret's file."""
    mark, _, digits = pathlib.Path(path).read_text().split()
    assert mark == "apus-secret" and len(digits) == 64
    return bytes.fromhex(digits)


class Refused(Exception):
    """The other side refused by name; `code` is the number of the error, 0 where it just closed the connection."""

    def __init__(self, code, detail=""):
        super().__init__(f"refused with {code} {detail}")
        self.code = code


def receive(connection):
    """(kind, body) of the next frame."""
    data = b""
    while len(data) < 4 or len(data) < struct.unpack_from("<I", data)[0]:
        wanted = struct.unpack_from("<I", data)[0] if len(data) >= 4 else 4
        try:
            piece = connection.recv(wanted - len(data))
        except ConnectionError:
            piece = b""
        if not piece:
            raise Refused(0, "by a closed connection")
        data += piece
    return struct.unpack_from("<H", data, 4)[0], data[ENVELOPE:]


def expect(connection, kind):
    found, body = receive(connection)
    if found == HELLO_REF:
        # request u64, code u16, ...: see apus_signal::tc::RequestRef.
        raise Refused(struct.unpack_from("<H", body, 8)[0], body[17:].decode(errors="replace"))
    if found != kind:
        raise Failure(f"a frame of kind {found} in the place of {kind}")
    return body


def greet(address, secret, role=CLIENT, verify=True, key=None, tamper=None, **hello):
    """Connects and proves `role` with `secret`; the connection. An attacker does not verify, may prove with another `key` than the role
    asks for, and may `tamper(request, challenge, proof)` with his proof."""
    connection = socket.create_connection(address, timeout=20)
    try:
        request = hello_body(role, **hello)
        connection.sendall(frame(HELLO_REQ, request))
        challenge = expect(connection, PROOF_REQ)
        its_proof, answer = challenge[:32], challenge[32:]
        if verify and not hmac.compare_digest(its_proof, proof(secret, b"A", request, answer)):
            raise Failure("the node did not prove that it knows the secret")
        own = proof(key or secret, b"C", request, answer)
        if tamper:
            own = tamper(request, challenge, own)
        connection.sendall(frame(PROOF_CONF, own))
        expect(connection, HELLO_CONF)
        return connection
    except BaseException:
        connection.close()
        raise


def ping(connection):
    """Whether the node serves us behind its hello."""
    connection.sendall(frame(5, b"12345678"))
    while True:
        kind, body = receive(connection)
        if kind == 6:
            return body == b"12345678"
