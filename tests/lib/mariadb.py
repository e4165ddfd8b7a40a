"""A private MariaDB server: own data directory, own socket, optionally a loopback port; for comparing answers and speed."""

import pathlib
import shutil
import socket

from .harness import check, end, run, spawn, tail, wait_until

SERVER = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
CLIENT = shutil.which("mariadb") or "mariadb"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class MariaDb:
    def __init__(self, directory, tcp=False, options=()):
        self.directory = pathlib.Path(directory)
        self.socket = self.directory / "m.sock"
        self.log = self.directory / "server.log"
        self.port = free_port() if tcp else None
        self.options = options

    def __enter__(self):
        self.directory.mkdir(parents=True, exist_ok=True)
        run(["mariadb-install-db", "--no-defaults", "--user=root", "--auth-root-authentication-method=normal",
             "--skip-test-db", f"--datadir={self.directory / 'data'}"], seconds=120)
        self.start()
        return self

    def start(self, seconds=60):
        """Starts the server on what is there, and waits until it answers."""
        network = [f"--port={self.port}", "--bind-address=127.0.0.1"] if self.port else ["--skip-networking"]
        command = [SERVER, "--no-defaults", "--user=root", f"--datadir={self.directory / 'data'}", f"--socket={self.socket}",
                   f"--pid-file={self.directory / 'pid'}", "--character-set-server=utf8mb4",
                   "--collation-server=utf8mb4_general_ci", *network, *self.options]
        with open(self.log, "wb") as log:
            self.process = spawn(command, stdout=log, stderr=log)
        try:
            wait_until(self._answers, seconds, "mariadbd answers")
        except BaseException:
            end(self.process)
            raise

    def _answers(self):
        check(self.process.poll() is None, f"mariadbd ended:\n{tail(self.log.read_text(errors='replace'))}")
        code, _ = run([CLIENT, "--no-defaults", "-uroot", f"-S{self.socket}", "-e", "SELECT 1"], seconds=10, ok=False)
        return code == 0

    def __exit__(self, *_):
        end(self.process, seconds=60)


def batch(sql, host=None, port=None, unix=None, database=None, seconds=60, options=()):
    """Runs statements through the mariadb client; (return code, output). It goes on after errors, and its output is
    not buffered, so that results and errors come in order."""
    command = ["stdbuf", "-o0", CLIENT, "--no-defaults", "-uroot", "--batch", "--force", "--unbuffered", "--default-character-set=utf8mb4"]
    command += [f"-S{unix}"] if unix else [f"-h{host}", f"-P{port}", "--protocol=TCP"]
    command += [*options, database] if database else options
    return run(command, seconds=seconds, stdin=sql, ok=False)


def load(cluster, sql, database=None, seconds=60):
    """Runs statements against a cluster, none of which may fail."""
    host, port = cluster.sql
    code, said = batch(sql, database=database, host=host, port=port, seconds=seconds)
    check(code == 0 and "ERROR" not in said, f"statements were refused:\n{tail(said)}")


def dump(cluster, database, *options, seconds=60):
    """What mariadb-dump writes of a database."""
    host, port = cluster.sql
    command = ["mariadb-dump", "--no-defaults", *options, "-uroot", f"-h{host}", f"-P{port}", "--protocol=TCP", database]
    code, text = run(command, seconds=seconds, ok=False)
    check(code == 0 and "Error" not in text, f"mariadb-dump ended with {code}:\n{tail(text)}")
    return text
