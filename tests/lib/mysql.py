"""The reference: a private MySQL server of the version that tests/reference/get.sh pins, with a data directory and a socket of its own; and its clients."""

import os
import pathlib
import subprocess

from .harness import ROOT, TARGET, check, end, run, spawn, tail, wait_until
from .mariadb import free_port

VERSION = "9.7.4"
# How get.sh ends where sid has gone on.
OTHER_VERSIONS = 3
FOLDER = pathlib.Path(os.environ.get("MYSQL_REFERENCE", TARGET / "mysql"))


def get(folder=FOLDER, *packages):
    """Unpacks packages of Debian sid, if need be, the server and its clients if none are named. Nothing, or which of them sid has in other versions."""
    packages = packages or [f"mysql-{part}-core={VERSION}" for part in ("server", "client")]
    got = subprocess.run([ROOT / "tests/reference/get.sh", folder, *packages], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(got.returncode in (0, OTHER_VERSIONS), got.stdout)
    return got.stdout.strip() if got.returncode else ""


def program(name, folder=FOLDER):
    """A program of these packages with the libraries that it was built for, as a command."""
    libraries = f"{folder / 'usr/lib/x86_64-linux-gnu'}:{folder / 'usr/lib/mysql'}"
    return [str(folder / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", libraries, str(folder / "usr" / name)]


class MySql:
    def __init__(self, directory, tcp=False, options=()):
        self.directory = pathlib.Path(directory)
        self.socket = self.directory / "s.sock"
        self.log = self.directory / "server.log"
        # The directory whose files statements may write and read.
        self.files = self.directory / "files"
        self.port = free_port() if tcp else None
        self.options = options

    def command(self, *more):
        return [*program("sbin/mysqld"), "--no-defaults", "--user=root", f"--basedir={FOLDER / 'usr'}", f"--lc-messages-dir={FOLDER / 'usr/share/mysql'}",
                f"--datadir={self.directory / 'data'}", *more]

    def __enter__(self):
        problem = get()
        check(not problem, problem)
        self.directory.mkdir(parents=True, exist_ok=True)
        run(self.command("--initialize-insecure"), seconds=120)
        network = [f"--port={self.port}", "--bind-address=127.0.0.1"] if self.port else ["--skip-networking"]
        self.files.mkdir()
        options = ["--mysqlx=OFF", f"--secure-file-priv={self.files}", *network, f"--socket={self.socket}",
                   f"--pid-file={self.directory / 'pid'}",
                   "--disable-log-bin", "--innodb-flush-log-at-trx-commit=0", "--transaction-isolation=READ-COMMITTED", *self.options]
        with open(self.log, "wb") as log:
            self.process = spawn(self.command(*options), stdout=log, stderr=log)
        try:
            wait_until(self._answers, 60, "mysqld answers")
        except BaseException:
            end(self.process)
            raise
        return self

    def _answers(self):
        check(self.process.poll() is None, f"mysqld ended:\n{tail(self.log.read_text(errors='replace'))}")
        return self.socket.exists() and "ready for connections" in self.log.read_text(errors="replace")

    def __exit__(self, *_):
        end(self.process, seconds=60)
