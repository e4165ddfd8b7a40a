"""Applications as Debian ships them, unpacked below the target folder, and run on loopback against an Apus of the test's own."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import zlib

from .harness import Failure, end, spawn, wait_until
from .mariadb import free_port  # noqa: F401  for those who use this module
from .mysql import program

HERE = pathlib.Path(__file__).resolve().parents[1]
APPS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "test-clients" / "apps"


def unpacked(name, *packages):
    """The folder into which these packages are unpacked."""
    folder = APPS / name
    done = subprocess.run([HERE / "apps" / "get.sh", folder, *packages], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise Failure(f"{' '.join(packages)} cannot be had:\n{done.stdout}{done.stderr}")
    return folder


def has_loader(folder):
    """Whether these packages came with a C library of their own, as those of sid do."""
    return (folder / "usr/lib64/ld-linux-x86-64.so.2").exists()


def environment(folder):
    """With the libraries that came with the packages. Those of sid are for its own programs, not for what these call."""
    if has_loader(folder):
        return dict(os.environ)
    libraries = [folder / place for place in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/freeradius", "usr/lib/x86_64-linux-gnu/pulseaudio")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}


def php(folder, extensions, *settings):
    """The command of PHP as unpacked, without files of settings."""
    modules, binary = next((folder / "usr/lib/php").glob("2*")), next((folder / "usr/bin").glob("php8.?"))
    command = program(f"bin/{binary.name}", folder) if has_loader(folder) else [binary]
    return [*command, "-n", f"-dextension_dir={modules}", *[f"-dextension={name}" for name in extensions], *[f"-d{setting}" for setting in settings]]


@contextlib.contextmanager
def php_server(folder, home, site, extensions, *settings):
    """The port of PHP's own web server, with four processes."""
    port, log = free_port(), home / "php.log"
    command = [*php(folder, extensions, *settings), "-S", f"127.0.0.1:{port}", "-t", site]
    with open(log, "wb") as out:
        process = spawn(command, stdout=out, stderr=out, env={**environment(folder), "PHP_CLI_SERVER_WORKERS": "4"}, start_new_session=True)
    try:
        wait_for(process, port, log, "PHP")
        yield port
    finally:
        # Its workers outlive it unless they are told, too.
        os.killpg(process.pid, signal.SIGTERM)
        end(process)
        wait_until(lambda: not has_members(process.pid), 10, "PHP's workers end")


def has_members(group):
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return False


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def wait_for(process, port, log, what):
    wait_until(lambda: process.poll() is not None or answers(port), 30, f"{what} answers")
    if process.poll() is not None:
        raise Failure(f"{what} ended:\n{log.read_text(errors='replace')[-2000:]}")


def ask(port, method, path, body=None, headers=None):
    """(status, body) of a request by HTTP; JSON goes in as an object and comes out as text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def picture(width=64, height=48):
    """A PNG."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + bytes((x * 3) % 256 for x in range(width * 3)) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
