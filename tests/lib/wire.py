"""A MySQL client of packets: it sends what it is told, byte by byte, and returns what comes as it comes. For what no driver lets one see or do.

With `compress` (`zlib` or `zstd`) packets travel in compressed ones from the login on.
"""

import hashlib
import socket
import struct
import time
import zlib

import zstandard

LONG_PASSWORD, FOUND_ROWS, LONG_FLAG, CONNECT_WITH_DB, COMPRESS, PROTOCOL_41, TRANSACTIONS = 1, 2, 4, 8, 32, 512, 8192
SECURE, MULTI_STATEMENTS, MULTI_RESULTS, PLUGIN_AUTH, CONNECT_ATTRS = 1 << 15, 1 << 16, 1 << 17, 1 << 19, 1 << 20
SESSION_TRACK, DEPRECATE_EOF, ZSTD, QUERY_ATTRIBUTES = 1 << 23, 1 << 24, 1 << 26, 1 << 27
BASE = LONG_PASSWORD | LONG_FLAG | PROTOCOL_41 | TRANSACTIONS | SECURE | MULTI_STATEMENTS | MULTI_RESULTS | PLUGIN_AUTH
PART = 0xFFFFFF


class Ended(Exception):
    """The server has closed the connection."""


def lenenc(number):
    if number < 251:
        return bytes([number])
    if number < 1 << 16:
        return b"\xfc" + struct.pack("<H", number)
    if number < 1 << 24:
        return b"\xfd" + struct.pack("<I", number)[:3]
    return b"\xfe" + struct.pack("<Q", number)


def text(data):
    return lenenc(len(data)) + data


def framed(payload, sequence=0):
    """A payload as packets; one of 16 MiB or more is several."""
    out = b""
    while True:
        part, payload = payload[:PART], payload[PART:]
        out += struct.pack("<I", len(part))[:3] + bytes([sequence & 255]) + part
        sequence += 1
        if len(part) < PART:
            return out


class Client:
    def __init__(self, where, capabilities=BASE, compress=None, level=3, database=None, attributes=(), user=b"root", seconds=30):
        self.socket = socket.socket(socket.AF_UNIX) if isinstance(where, str) else socket.create_connection(where, timeout=seconds)
        self.socket.settimeout(seconds)
        if isinstance(where, str):
            self.socket.connect(where)
        self.raw, self.plain, self.compress, self.level = bytearray(), bytearray(), None, level
        self.sent, self.received, self.sequence, self.outer = 0, 0, 0, 0
        self.greeting = self.packet()
        if self.greeting[0] == 0xFF:
            self.answer = self.greeting
            return
        end = self.greeting.index(b"\0", 1)
        self.id, self.scramble = struct.unpack_from("<I", self.greeting, end + 1)[0], self.greeting[end + 5:end + 13]
        low, high = struct.unpack_from("<H", self.greeting, end + 14)[0], struct.unpack_from("<H", self.greeting, end + 19)[0]
        self.scramble += self.greeting[end + 32:end + 44]
        self.offered = low | high << 16
        capabilities |= {None: 0, "zlib": COMPRESS, "zstd": ZSTD}[compress] | (CONNECT_WITH_DB if database else 0)
        capabilities |= CONNECT_ATTRS if attributes else 0
        self.capabilities = capabilities
        login = struct.pack("<IIB23x", capabilities, 1 << 24, 255) + user + b"\0\0"
        login += database.encode() + b"\0" if database else b""
        login += b"caching_sha2_password\0"
        if attributes:
            login += text(b"".join(text(word.encode()) for pair in attributes for word in pair))
        if capabilities & ZSTD:
            login += bytes([level])
        self.send(login, 1)
        self.answer = self.packet()
        if self.answer[0] == 0xFE:
            self.send(b"", self.sequence + 1)
            self.answer = self.packet()
        if self.answer[:2] == b"\x01\x03":
            self.answer = self.packet()
        if self.answer[0] == 0:
            self.compress = compress

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, payload, sequence=0):
        """A packet."""
        self.send_bytes(framed(payload, sequence))

    def send_bytes(self, data):
        """Packets, compressed if the connection is; smaller ones than 50 bytes go as they are."""
        if self.compress:
            self.outer, parts = 0, b""
            for at in range(0, len(data), PART):
                part = data[at:at + PART]
                parts += self.wrapped(part, self.outer)
                self.outer += 1
            data = parts
        self.send_raw(data)

    def wrapped(self, part, sequence, declared=None):
        packed = part if len(part) < 50 else self.pack(part)
        if declared is None:
            declared = len(part) if packed is not part else 0
        return struct.pack("<I", len(packed))[:3] + bytes([sequence & 255]) + struct.pack("<I", declared)[:3] + packed

    def pack(self, data):
        if self.compress == "zlib":
            return zlib.compress(data)
        return zstandard.compress(data, self.level)

    def unpack(self, data, size):
        if self.compress == "zlib":
            return zlib.decompress(data)
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)

    def send_raw(self, data):
        self.socket.sendall(data)
        self.sent += len(data)

    def _take(self, count):
        while len(self.raw) < count:
            got = self.socket.recv(1 << 20)
            if not got:
                raise Ended()
            self.raw += got
            self.received += len(got)
        taken = bytes(self.raw[:count])
        del self.raw[:count]
        return taken

    def _take_plain(self, count):
        if not self.compress:
            return self._take(count)
        while len(self.plain) < count:
            header = self._take(7)
            packed = self._take(int.from_bytes(header[:3], "little"))
            size = int.from_bytes(header[4:], "little")
            self.outer = header[3]
            self.plain += self.unpack(packed, size) if size else packed
        taken = bytes(self.plain[:count])
        del self.plain[:count]
        return taken

    def packet(self):
        """The next packet's payload, its parts joined."""
        whole = b""
        while True:
            header = self._take_plain(4)
            part = self._take_plain(int.from_bytes(header[:3], "little"))
            self.sequence = header[3]
            whole += part
            if len(part) < PART:
                return whole

    def command(self, payload, count):
        """A command and so many packets of its answer."""
        self.send(payload)
        return [self.packet() for _ in range(count)]

    def talk(self, payload, quiet=0.3):
        """A command and all that comes until nothing comes: to look at what a server does."""
        self.send(payload)
        found, patience = [], self.socket.gettimeout()
        try:
            while True:
                found.append(self.packet())
                self.socket.settimeout(quiet)
        except (TimeoutError, Ended):
            return found
        finally:
            self.socket.settimeout(patience)

    def query(self, statement):
        """The packets of a statement's answer, to its end."""
        if isinstance(statement, str):
            statement = statement.encode()
        head = b"\x03\x00\x01" if self.capabilities & QUERY_ATTRIBUTES else b"\x03"
        self.send(head + statement)
        return self.result()

    def result(self):
        """The packets of one result."""
        found = [self.packet()]
        if found[0][0] in (0, 0xFF):
            return found
        ends = 1 if self.capabilities & DEPRECATE_EOF else 2
        while ends:
            found.append(self.packet())
            if found[-1][0] == 0xFF:
                break
            ends -= found[-1][0] == 0xFE and len(found[-1]) < 9 + (1 << 16) * bool(self.capabilities & DEPRECATE_EOF)
        return found

    def prepare(self, statement):
        """The id of a prepared statement, or the packet of the error."""
        self.send(b"\x16" + statement.encode())
        head = self.packet()
        if head[0] != 0:
            return head
        columns, params = struct.unpack_from("<HH", head, 5)
        for count in (params, columns):
            for _ in range(count + (count > 0 and not self.capabilities & DEPRECATE_EOF)):
                self.packet()
        return struct.unpack_from("<I", head, 1)[0]


def error(packet):
    """(number, SQLSTATE, text) of an error."""
    return struct.unpack_from("<H", packet, 1)[0], packet[4:9].decode(), packet[9:].decode()


def scrambled(password, scramble):
    """The proof of caching_sha2_password."""
    def sha(data):
        return hashlib.sha256(data).digest()
    digest = sha(password)
    return bytes(a ^ b for a, b in zip(digest, sha(sha(digest) + scramble)))


def wait_for_end(client, seconds=30):
    """Whether the server closes the connection."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            client.packet()
        except (Ended, OSError):
            return True
    return False
