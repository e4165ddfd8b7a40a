"""What the measurements of Apus by itself share: clusters by durability, `apus bench kv`, the disk, and what a data node writes to it.

A measurement of durability on a memory file system would measure nothing, so `on_disk` refuses that, and a disk that has no room."""

import contextlib
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import threading
import time
import typing

import peers  # noqa: F401  (puts tests/ on the path)
import pymysql
from lib import sysbench
from lib.cluster import Cluster
from lib.harness import BINARY, check, end, run, spawn, wait_until

MODES = ["off", "replicated", "disk"]
# Also, where it is asked for: as `replicated`, with encrypted files.
ENCRYPTED = "encrypted"
SHOWN = {"off": "log off", "replicated": "log on, class replicated", "disk": "log on, class disk", ENCRYPTED: "encrypted, class replicated"}
NUMBER = r"([\d,.]+)"
PHASE = re.compile(rf"^(\w+) +{NUMBER} operations/s, .* batch latency p50 {NUMBER} p99 {NUMBER} .*; {NUMBER} operations in {NUMBER} s, ", re.M)
GIB = 1 << 30
# What each worker of a data node that starts writes to its node's log, with its name before it.
READS = re.compile(r"(\S+) reads \d+ checkpoints and its log")
PUT_BACK = re.compile(r"(\S+) has put back (\d+) rows from checkpoints and (\d+) changes from (\d+) blocks of its log")
# What sysbench tells of each second.
SECOND = re.compile(r"^\[ \d+s \] .* tps: ([\d.]+) .* lat \(ms,\d+%\): ([\d.]+) err/s: ([\d.]+)")
WARM_SECONDS = 2
FILLED = re.compile(r"\S+ was filled in (\d+) ms: (\d+) rows fetched, (\d+) unchanged, (\d+) gone")


def number(text):
    return float(text.replace(",", ""))


class Phase:
    """One phase of `apus bench kv`: operations and seconds, latency of a request in microseconds."""

    def __init__(self, p50, p99, operations, seconds):
        self.p50, self.p99, self.operations, self.seconds = p50, p99, operations, seconds

    @property
    def rate(self):
        return self.operations / self.seconds


def phases(text):
    """{phase: what it did}; a failure if anything went wrong in it."""
    check(not re.search(r"errors [1-9]|wrong [1-9]|missing [1-9]", text), text)
    return {name: Phase(number(p50), number(p99), number(count), max(number(seconds), 0.01)) for name, _, p50, p99, count, seconds in PHASE.findall(text)}


def kv_command(wanted, **options):
    return ["bench", "kv", f"--phases={','.join(wanted)}", *(f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value is not None)]


def kv(cluster, wanted, *flags, **options):
    """Runs phases of `apus bench kv`: {phase: what it did}."""
    _, text = cluster.apus(*kv_command(wanted, **options), *flags, seconds=3600)
    found = phases(text)
    check(list(found) == list(wanted), text)
    return found


@contextlib.contextmanager
def cluster(scenario, mode, name, **options):
    """Two data nodes: `off`, without a directory; `replicated` and `disk`, with one and that class. Its files go with it."""
    directory = scenario.directory / f"{name}.d"
    if mode != "off":
        options["dir"] = directory
    if mode == ENCRYPTED:
        options["disk_key"] = scenario.directory / f"{name}.key"
        run([BINARY, "secret", "disk-key", options["disk_key"]])
    try:
        with Cluster(scenario, name=name, **options) as started:
            if mode != "off":
                started.apus("cluster", "set", f"durability={'disk' if mode == 'disk' else 'replicated'}")
            yield started
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(scenario.directory / name, ignore_errors=True)


def on_disk(directory, gib=20):
    """Refuses a directory in memory, and a disk with less room than so many GiB."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", directory], capture_output=True, text=True, check=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"{directory} is in memory ({kind}): what a disk costs cannot be measured there; unmount /tmp, or mount a disk there")
    free = shutil.disk_usage(directory).free
    if free < gib * GIB:
        raise SystemExit(f"{directory} has {free / GIB:.0f} GiB free, this measurement may need {gib}: make room, or ask for fewer rows")


def syncs_per_second(directory, seconds=2):
    """Appends of 4 KiB, each with fdatasync."""
    path = pathlib.Path(directory) / "syncs"
    with open(path, "wb", buffering=0) as file:
        began, count = time.monotonic(), 0
        while time.monotonic() < began + seconds:
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            count += 1
    path.unlink()
    return count / seconds


class Machine:
    """The line above a table. Made before the load that it would otherwise tell of; the disk is asked again at the end."""

    def __init__(self, scenario, servers=(), disk=True):
        self.line, self.directory = peers.machine(servers), scenario.directory
        self.syncs = [syncs_per_second(self.directory)] if disk else []

    def __str__(self):
        if not self.syncs:
            return self.line
        both = [*self.syncs, syncs_per_second(self.directory)]
        return f"{self.line}; the disk makes {statistics.mean(both):,.0f} appends of 4 KiB with fdatasync per second ({both[0]:,.0f} before, {both[1]:,.0f} after)"


def files_of(cluster, node):
    """The directory with a data node's logs and checkpoints."""
    return pathlib.Path(cluster.describe()["dir"]) / "files" / f"data-{node}"


def ask(address, *statements):
    """Runs statements; the first row of the last one."""
    host, port = address
    with pymysql.connect(host=host, port=port, user="root", read_timeout=1800, autocommit=True) as link, link.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchone()


class Watcher(threading.Thread):
    """Looks at files again and again, in a `with`. What it saw before does not count."""

    def __init__(self, pause):
        super().__init__(daemon=True)
        self.pause, self.ended = pause, threading.Event()

    def __enter__(self):
        self.look()
        self.begin()
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()
        self.look()

    def run(self):
        while not self.ended.wait(self.pause):
            self.look()


class Logs(Watcher):
    """The lines that nodes write to their logs meanwhile, and when each was seen, to some milliseconds."""

    def __init__(self, directory, names):
        super().__init__(pause=0.005)
        self.paths = [directory / f"{name}.log" for name in names]
        self.read_to, self.lines = {}, []

    def begin(self):
        self.lines = []

    def look(self):
        for path in self.paths:
            if not path.exists():
                continue
            with open(path, "rb") as file:
                size, begin = file.seek(0, os.SEEK_END), self.read_to.get(path, 0)
                file.seek(begin if begin <= size else 0)
                whole, newline, rest = file.read().rpartition(b"\n")
                self.read_to[path] = file.tell() - len(rest)
            if newline:
                self.lines += [(time.monotonic(), line) for line in whole.decode(errors="replace").splitlines()]

    def found(self, pattern):
        """[(when, what the pattern's groups caught)]."""
        return [(at, found.groups()) for at, line in self.lines if (found := pattern.match(line))]

    def filled(self):
        """(milliseconds, rows fetched, unchanged, gone) of each worker that was filled."""
        return [tuple(map(int, caught)) for _, caught in self.found(FILLED)]

    def put_back(self):
        """(seconds by the clock from the first look at its files, rows, changes, blocks) of each worker that put back what was on its disk."""
        begun = {worker: at for at, (worker,) in self.found(READS)}
        return [(at - begun[worker], *map(int, counts)) for at, (worker, *counts) in self.found(PUT_BACK)]


def checkpoints(files):
    """How many checkpoints a node has made that count, over all its workers: the newest turn in each control file, as `apus inspect` prints it."""
    _, text = run([BINARY, "inspect", *sorted(files.glob("redo-*.ctl"))])
    newest, turns = 0, []
    for line in text.splitlines():
        if found := re.match(r"checkpoint \d+, turn (\d+)", line):
            newest = max(newest, int(found.group(1)))
        elif ": control file of" in line:
            turns.append(newest)
            newest = 0
    check(len(turns) > 0, f"no control file in {files}:\n{text}")
    return sum(turns)


def written(pid):
    """Bytes that a process has given to the disk. What is replaced or removed before it gets there counts at most once."""
    with open(f"/proc/{pid}/io") as file:
        counted = dict(line.split(": ") for line in file.read().splitlines())
    return int(counted["write_bytes"]) - int(counted["cancelled_write_bytes"])


class CheckpointFiles(Watcher):
    """A data node's checkpoint files: when they grew, and by how much; and how many were finished."""

    def __init__(self, files):
        super().__init__(pause=0.05)
        self.files, self.sizes, self.bytes, self.grew = files, {}, 0, []

    def begin(self):
        self.bytes, self.grew, self.before = 0, [], checkpoints(self.files)

    def __exit__(self, *how):
        super().__exit__(*how)
        self.counted = self.finished()

    def finished(self):
        """Checkpoints that were finished since the beginning."""
        return checkpoints(self.files) - self.before

    def look(self):
        for path in self.files.glob("lcp-*.data"):
            with contextlib.suppress(FileNotFoundError):
                more = path.stat().st_size - self.sizes.get(path.name, 0)
                if more > 0:
                    self.sizes[path.name] = self.sizes.get(path.name, 0) + more
                    self.bytes += more
                    self.grew.append(time.monotonic())

    def grew_between(self, begin, end):
        return any(begin <= at <= end for at in self.grew)


class Second(typing.NamedTuple):
    """What sysbench tells of a second, and when it did: latency is the percentile that was asked for, in milliseconds. Errors are deadlocks, after which it tries again."""

    at: float
    transactions: float
    latency: float
    errors: float


class Load(threading.Thread):
    """A run of sysbench that tells of each second. In a `with`, which fails on any error of sysbench's but deadlocks."""

    def __init__(self, workload, address, percentile, extra=(), **options):
        super().__init__(daemon=True)
        self.seconds, self.text = [], ""
        line = sysbench.command(workload, "run", address, seconds=3600, extra=["--report-interval=1", f"--percentile={percentile}", *extra], **options)
        self.process = spawn(["stdbuf", "-oL", *line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self):
        for line in self.process.stdout:
            self.text += line
            if found := SECOND.match(line):
                self.seconds.append(Second(time.monotonic(), *map(float, found.groups())))

    def __enter__(self):
        self.start()
        try:
            wait_until(lambda: len(self.seconds) >= WARM_SECONDS, 30 + WARM_SECONDS, f"sysbench tells of its first seconds: {self.text}")
        except BaseException:
            end(self.process)
            raise
        return self

    def __exit__(self, kind, *_):
        ended = self.process.poll()
        end(self.process)
        self.join()
        self.process.stdout.close()
        if kind is None:
            sysbench.refuse_errors(self.text)
            check(ended is None, f"sysbench ended by itself:\n{self.text[-2000:]}")

    def next_second(self):
        """Waits until the second is told that is under way now."""
        count = len(self.seconds)
        wait_until(lambda: len(self.seconds) > count, 30, "sysbench tells of the next second")

    def between(self, begin, finish):
        """What was told of the seconds that overlap with this time."""
        return [told for told in self.seconds if told.at > begin and told.at - 1 < finish]


def medians(runs, value=lambda run: run):
    return statistics.median(map(value, runs))


def in_turn(kinds, rounds):
    """All kinds, `rounds` times, forwards and backwards: (number of the round, kind)."""
    for turn in range(rounds):
        for kind in kinds if turn % 2 == 0 else list(reversed(kinds)):
            yield turn, kind
