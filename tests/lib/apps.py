"""Applications as Debian ships them, unpacked below the target folder, and run on loopback against an Apus of the test's own."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess

from .harness import Failure, end, spawn, wait_until
from .mariadb import free_port  # noqa: F401  for those who use this module

HERE = pathlib.Path(__file__).resolve().parents[1]
APPS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "test-clients" / "apps"


def unpacked(name, *packages):
    """The folder into which these packages are unpacked."""
    folder = APPS / name
    done = subprocess.run([HERE / "apps" / "get.sh", folder, *packages], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise Failure(f"{' '.join(packages)} cannot be had:\n{done.stdout}{done.stderr}")
    return folder


def environment(folder):
    """With the libraries that came with the packages."""
    libraries = [folder / place for place in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/freeradius", "usr/lib/x86_64-linux-gnu/pulseaudio")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}


def php(folder, extensions, *settings):
    """The command of PHP as unpacked, without files of settings."""
    modules = next((folder / "usr/lib/php").glob("2*"))
    return [folder / "usr/bin/php8.2", "-n", f"-dextension_dir={modules}", *[f"-dextension={name}" for name in extensions], *[f"-d{setting}" for setting in settings]]


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
