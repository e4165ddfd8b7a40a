"""Files of data nodes are encrypted: nothing of what was written is in them, all of it is there for who has the key, and nothing is lost by a wrong or missing key, by a rotation or by turning it on and off.

A cluster in the clear beside it shows that the search finds what is to be found.
"""

import os
import re
import signal

import pymysql

from lib.cluster import Cluster
from lib.harness import BINARY, alive, check, check_equal, run, scenario_main, spawn, wait_until

LIMIT_SECONDS = (300, 300)

# In rows, in a key, and as names of a table and a column.
WORDS = ["swiftnestinarow", "swiftnestinakey", "swiftnesttable", "swiftnestcolumn"]
ROWS = 400


class Files:
    """A cluster with a directory, started again and again with other keys."""

    def __init__(self, t, name):
        self.t, self.directory, self.starts, self.cluster = t, t.directory / name, 0, None

    def start(self, **options):
        self.starts += 1
        name = f"{self.directory.name}-{self.starts}"
        # Small ones, so that checkpoints are among the files.
        self.cluster = Cluster(self.t, name=name, dir=self.directory, checkpoint_log=1, workers=1, **options).__enter__()
        self.cluster.apus("cluster", "set", "durability=disk")

    def connect(self):
        host, port = self.cluster.sql
        return pymysql.connect(host=host, port=port, user="root", autocommit=True)

    def execute(self, *statements):
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def fill(self):
        self.execute("CREATE DATABASE birds", f"CREATE TABLE birds.{WORDS[2]} (k VARCHAR(40) PRIMARY KEY, {WORDS[3]} VARCHAR(2000))")
        self.add(0)

    def add(self, first):
        rows = ",".join(f"('{WORDS[1]}{n}', '{WORDS[0] * 100}')" for n in range(first, first + ROWS))
        self.execute(f"INSERT INTO birds.{WORDS[2]} VALUES {rows}")

    def check_rows(self, wanted):
        found = self.execute(f"SELECT COUNT(*), SUM({WORDS[3]} = '{WORDS[0] * 100}') FROM birds.{WORDS[2]}")
        check_equal(tuple(int(n) for n in found[0]), (wanted, wanted), "rows")

    def kill_all(self):
        pids = [self.cluster.process.pid, *self.cluster.everyone().values()]
        [os.kill(pid, signal.SIGKILL) for pid in pids]
        self.cluster.process.wait()
        wait_until(lambda: not any(alive(pid) for pid in pids), 60, "all are gone")

    def files(self):
        return sorted(file for file in (self.directory / "files").glob("data-*/*") if file.is_file())

    def words(self):
        """Which of the words are in which files, but for what is not used any more."""
        found = {}
        for file in self.files():
            content = file.read_bytes()
            here = [word for word in WORDS if word.encode() in content]
            if here:
                found[file.name] = here
        return found

    def content(self):
        return {file: file.read_bytes() for file in self.files() if file.name != "lock"}

    def refused(self, **options):
        """What the data nodes say who do not start."""
        before = self.content()
        name = f"{self.directory.name}-refused-{self.starts}"
        self.starts += 1
        cluster = Cluster(self.t, name=name, dir=self.directory, workers=1, **options)
        with open(cluster.log, "wb") as log:
            process = spawn([BINARY, "dev", f"--ready-file={cluster.ready_file}", *cluster.arguments], stdout=log, stderr=log, env=cluster.environment, start_new_session=True)
        process.wait(timeout=60)
        check(process.returncode != 0, "it has started")
        check_equal(self.content() == before, True, "files are as they were")
        return cluster.log.read_text() + "".join(log.read_text() for log in self.directory.glob("data-*.log"))

    def inspect(self, *options):
        files = [file for file in self.files() if file.name not in ("lock", "disk-probe")]
        return run([BINARY, "inspect", "--brief", *options, *files], ok=False)

    def wait_log(self, text):
        logs = [self.directory / f"data-{node}.log" for node in (1, 2)]
        wait_until(lambda: all(text in log.read_text() for log in logs), 60, f"both nodes say {text!r}")


def make_key(file, *options):
    _, said = run([BINARY, "secret", "disk-key", *options, file])
    return re.search(r"disk key ([0-9a-f]{16})", said).group(1)


def main(t):
    key, other = t.directory / "disk.key", t.directory / "other.key"
    first = make_key(key)
    make_key(other)
    with t.case("in the clear all words are in the files"):
        clear = Files(t, "clear")
        clear.start()
        clear.fill()
        clear.kill_all()
        found = clear.words()
        check_equal({word for words in found.values() for word in words}, set(WORDS), f"words found in {found}")
    files = Files(t, "encrypted")
    with t.case("with a key no word is in any file, and all rows are there after kill -9 of everything"):
        files.start(disk_key=key)
        files.fill()
        for number in range(1, 4):
            files.add(number * ROWS)
        wait_until(lambda: any(file.name.startswith("lcp-") for file in files.files()), 60, "a checkpoint is written")
        files.kill_all()
        check_equal(files.words(), {}, "words in files")
        files.start(disk_key=key)
        files.check_rows(4 * ROWS)
        files.kill_all()
        code, printed = files.inspect(f"--disk-key={key}")
        check(code == 0 and "whole" in printed and "encrypted" in printed, printed)
        code, printed = files.inspect()
        check(code != 0 and f"needs disk key {first}" in printed and "DAMAGED" not in printed, printed)
    with t.case("without the key, or with another one, nodes do not start, say which key they need, and change nothing"):
        for options in ({}, {"disk_key": other}):
            said = files.refused(**options)
            check(f"needs disk key {first}" in said and "--disk-key" in said and "Nothing in" in said, said)
        files.start(disk_key_command=f"cat {key}")
        files.check_rows(4 * ROWS)
    with t.case("a key is rotated while the cluster runs, and the older one is needed no more"):
        second = make_key(key, "--rotate")
        for node in (1, 2):
            os.kill(files.cluster.data_pid(node), signal.SIGHUP)
        files.wait_log(f"disk key {second}: ")
        files.add(4 * ROWS)
        files.kill_all()
        newest = t.directory / "newest.key"
        newest.touch(mode=0o600)
        newest.write_text("".join(key.read_text().splitlines(keepends=True)[:2]))
        check(second in newest.read_text() and first not in newest.read_text(), "the key file has two lines for each key")
        files.start(disk_key=newest)
        files.check_rows(5 * ROWS)
        files.kill_all()
        said = files.refused(disk_key=other)
        check(f"needs disk key {second}" in said, said)
    with t.case("turned off, files are written in the clear, and turned on again"):
        start_decrypting(files, newest)
        files.add(5 * ROWS)
        files.kill_all()
        check(files.words(), "what was written now is in the clear")
        files.start(disk_key=newest)
        files.check_rows(6 * ROWS)
        files.kill_all()
    with t.case("turned on over a directory in the clear, and when each node has written a checkpoint of everything nothing is left"):
        clear.start(disk_key=key)
        clear.check_rows(ROWS)
        clear.add(ROWS)
        clear.wait_log("all that counts of this log is encrypted now")
        wait_until(lambda: not clear.words(), 60, "files in the clear are gone")
        clear.check_rows(2 * ROWS)
        clear.kill_all()
        clear.start(disk_key=key)
        clear.check_rows(2 * ROWS)
        clear.kill_all()


def start_decrypting(files, key):
    """An option without a value."""
    files.starts += 1
    cluster = Cluster(files.t, name=f"decrypt-{files.starts}", dir=files.directory, checkpoint_log=1, workers=1, disk_key=key)
    cluster.arguments.append("--disk-decrypt")
    files.cluster = cluster.__enter__()


if __name__ == "__main__":
    scenario_main(main)
