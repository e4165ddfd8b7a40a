"""Disks that lose what was not synced, are full, fail, fall silent, or give back other bytes: nothing acknowledged is lost, and nobody else is harmed.

`kill -9` leaves the kernel's cache as it is, so the loss of power is played on `apus-chaos-disk`, a file system that forgets and tears what was not synced. FULL: 50 losses
of power.
"""

import contextlib
import random
import re
import shutil
import time

import pymysql

from lib.bank import Bank, connect
from lib.cluster import Cluster
from lib.disk import ChaosDisk, can_mount, small_disk
from lib.harness import FULL, Failure, alive, check, check_equal, scenario_main, wait_until

LIMIT_SECONDS = (420, 2400)
ROUNDS = 50 if FULL else 4
# Room for the logs that two data nodes begin with, and a little more.
SMALL_MIB = 300


def lose_power(t):
    mount = t.directory / "mount"
    mount.mkdir()
    with ChaosDisk(mount, t.directory / "disk.log") as disk, Bank(t, mount / "power") as bank:
        for number in range(ROUNDS):
            bank.work(0.5)
            bank.kill_all()
            loss = disk.tell(f"power {number}")
            bank.start()
            t.say(f"{loss}; {len(bank.acknowledged)} transfers so far")
            bank.check_nothing_lost()


def insert(cursor, first, count=1000):
    rows = ", ".join(f"({number}, REPEAT('x', 1000))" for number in range(first, first + count))
    cursor.execute(f"INSERT INTO wide VALUES {rows}")


def fill(cursor):
    """Inserts until there is no room; how many rows are there then."""
    for first in range(0, 1_000_000, 1000):
        try:
            insert(cursor, first)
        except pymysql.MySQLError as error:
            check_equal(error.args[0], 1297, f"the error of a full disk ({error})")
            return first
    raise Failure("the disk does not become full")


def refusal(cursor, number):
    """The number of the error with which one more row is refused; `None`: it is inserted."""
    try:
        insert(cursor, number, 1)
    except pymysql.MySQLError as error:
        return error.args[0]
    return None


def be_full(t):
    with small_disk(t.directory / "small", SMALL_MIB) as resize, Bank(t, t.directory / "small" / "full") as bank:
        with contextlib.closing(connect(bank.cluster.sql)) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE wide (id INT PRIMARY KEY, pad VARCHAR(1000))")
            there = fill(cursor)
            began = time.monotonic()
            check_equal(refusal(cursor, there), 1297, "the error of a change")
            t.say(f"{there} rows of 1000 bytes; the next is refused after {time.monotonic() - began:.2f} s")
            cursor.execute("SELECT COUNT(*) FROM wide")
            check_equal(cursor.fetchone()[0], there, "rows that can be read")
            resize(2 * SMALL_MIB)
            began = time.monotonic()
            wait_until(lambda: refusal(cursor, there) is None, 20, "changes are taken again")
            seconds = time.monotonic() - began
            t.say(f"changes again {seconds:.2f} s after there is room")
            check(seconds < 2.0, f"{seconds:.1f} s after there was room again")
        bank.cluster.check_all_alive()
        moment = bank.kill_all()
        bank.start()
        t.say(f"serves again {time.monotonic() - moment:.1f} s after all was killed")
        with contextlib.closing(connect(bank.cluster.sql)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*), MIN(LENGTH(pad)) FROM wide")
            check_equal(cursor.fetchone(), (there + 1, 1000), "rows after the restart")


@contextlib.contextmanager
def chaos_disks(t, bank, *nodes):
    """Moves what these data nodes of a cluster keep to a chaos disk each."""
    bank.end()
    with contextlib.ExitStack() as stack:
        disks = []
        for node in nodes:
            name = f"{bank.directory.name}-{node}"
            files, aside = bank.directory / "files" / f"data-{node}", t.directory / f"{name}-aside"
            shutil.move(files, aside)
            files.mkdir()
            disks.append(stack.enter_context(ChaosDisk(files, t.directory / f"{name}.log")))
            shutil.copytree(aside, files, dirs_exist_ok=True)
            shutil.rmtree(aside)
        bank.start()
        yield disks
        bank.end()


def lose_a_disk(t, name, breaks, mends):
    """The node whose disk breaks leaves, its partner goes on without it, and it comes back when the disk works."""
    with Bank(t, t.directory / name) as bank, chaos_disks(t, bank, 2) as (disk,):
        bank.work(0.5)
        pid = bank.cluster.data_pid(2)
        log = bank.directory / "data-2.log"
        said_before = log.stat().st_size
        disk.tell(breaks)
        wait_until(lambda: not alive(pid), 20, "the node ends")
        t.say(f"the node has ended, and money is moved again after {bank.goes_on():.1f} s")
        said = log.read_text()[said_before:]
        check("disk" in said, f"it does not say why:\n{said}")
        disk.tell(mends)
        bank.cluster.restart(2)
        t.say(f"a member again after {bank.cluster.wait_up(2):.1f} s")
        bank.goes_on()
        bank.kill_all()
        t.say(disk.tell("power 1"))
        bank.start()
        bank.check_nothing_lost()


def hang_all(t):
    """The disks of both nodes stand still at once, as those on one array do. Each node would leave it to the other to go on. One of them may: that whose disk is the first to be
    asked for something, if the other has nothing to write until it has gone."""
    with Bank(t, t.directory / "hung") as bank, chaos_disks(t, bank, 1, 2) as disks:
        bank.work(0.5)
        logs = [bank.directory / f"data-{node}.log" for node in (1, 2)]
        pids = {node: bank.cluster.data_pid(node) for node in (1, 2)}
        [disk.tell("stall") for disk in disks]
        wait_until(lambda: any("stays, and refuses changes" in log.read_text() for log in logs), 20, "a node stays")
        with contextlib.closing(connect(bank.cluster.sql)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM account")
            check(cursor.fetchone()[0] > 0, "reads go on")
        [disk.tell("go") for disk in disks]
        t.say(f"money is moved again {bank.goes_on():.1f} s after the disks answer")
        gone = [node for node, pid in pids.items() if not alive(pid)]
        check(len(gone) < 2, "both have left")
        for node in gone:
            bank.cluster.restart(node)
            bank.cluster.wait_up(node)
        bank.kill_all()
        [disk.tell("power 1") for disk in disks]
        bank.start()
        bank.check_nothing_lost()


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def synced_part(path):
    """Bytes at the start of a file that were synced: of a log the older half, for its end is zeros, and what is before that may be what nobody was promised."""
    content = path.read_bytes()
    return len(content.rstrip(b"\0")) // 2 if path.suffix == ".log" else len(content)


def give_another_byte(bank, name, chance):
    """Kills all, flips a byte of a file, starts again: nothing may be lost, both nodes become members, and somebody says what was found."""
    bank.work(0.3)
    # Of checkpoints the older one counts: there is none beside it before.
    fewest = 2 if "lcp" in name else 1
    wait_until(lambda: len(list((bank.directory / "files").glob(name))) >= fewest, 60, f"there is a {name}")
    bank.kill_all()
    path = min((bank.directory / "files").glob(name), key=lambda path: (len(path.name), path.name))
    at = chance.randrange(synced_part(path))
    flip(path, at)
    sizes = {log: log.stat().st_size for log in bank.directory.glob("*.log")}
    bank.start()
    [bank.cluster.wait_up(node) for node in (1, 2)]
    bank.check_nothing_lost()
    said = [line for log, size in sizes.items() for line in log.read_text()[size:].splitlines()]
    found = [line for line in said if names(line, path.name)]
    check(found, f"byte {at} of {name} is another one, and nobody says so:\n" + "\n".join(said))
    return found[0]


def names(line, file):
    """Whether a line says that a file is damaged; logs are named by their worker, checkpoints by their number."""
    name = {".log": file.rsplit("-", 1)[0], ".data": f"checkpoint {file.rsplit('-', 1)[-1][:-5]}"}.get(file[file.find(".") :], file)
    return any(f"{mark}{name}" in line for mark in ("`", " ", "(")) and "damaged" in line


# Every kind of file that a data node keeps, and the promises of a SQL node; with the MiB of log after which a checkpoint begins: what is before the newest one is not read.
NEVER = 1000
KINDS = [
    (NEVER, ["data-1/redo-0-*.log"]),
    (1, ["data-1/lcp-0-*.data", "data-1/redo-0.ctl", "data-1/view", "data-1/view-synced", "data-1/dictionary", "sql-1/arbitrator"]),
]


def give_other_bytes(t):
    chance = random.Random(1)
    for checkpoint_log, files in KINDS:
        with Bank(t, t.directory / f"other-{checkpoint_log}", checkpoint_log=checkpoint_log) as bank:
            for name in files:
                with t.case(f"a byte of {name} is another one: nothing is lost, and it is said"):
                    t.say(give_another_byte(bank, name, chance))


def refused_start(t, directory, name):
    """What `apus dev` says that cannot start."""
    cluster = Cluster(t, name=name, dir=directory)
    cluster.start_seconds = 10
    try:
        cluster.__enter__()
    except (SystemExit, Failure) as error:
        return str(error)
    cluster.stop()
    raise Failure("it starts")


def promises_are_damaged(t):
    """A management node that cannot read what it promised must not arbitrate: it does not start, and says what to do."""
    with Bank(t, t.directory / "promises") as bank:
        bank.work(0.3)
        bank.kill_all()
        promises = bank.directory / "files/mgmt/arbitrator"
        flip(promises, promises.stat().st_size - 1)
        said = refused_start(t, bank.directory, "promises-damaged") + (bank.directory / "mgmt.log").read_text()
        check("`arbitrator`" in said and "damaged" in said, said)
        promises.unlink()
        bank.start()
        bank.check_nothing_lost()


def be_rotten_everywhere(t):
    """The logs of both replicas: there is nobody to be filled from, so nobody serves, and it is said why."""
    with Bank(t, t.directory / "rotten", checkpoint_log=NEVER) as bank:
        bank.work(0.5)
        bank.kill_all()
        logs = [log for log in bank.directory.glob("files/data-*/redo-*.log") if synced_part(log) > 0]
        [flip(log, synced_part(log) // 2) for log in logs]
        before = {log: log.read_bytes() for log in logs}
        t.say(refused_start(t, bank.directory, "rotten-start").splitlines()[-1])
        said = "".join(log.read_text() for log in bank.directory.glob("*.log"))
        check("no node of group" in said and "is damaged" in said, f"nobody names the file:\n{said[-2000:]}")
        changed = [path.name for path, content in before.items() if path.read_bytes() != content]
        check_equal(changed, [], "logs that were changed")


def rot_while_they_live(t, name, checkpoint_log):
    """The same files of both replicas rot under living nodes: each finds that, writes anew what it has in memory, and a start from the disks meets nothing that is damaged."""
    directory = t.directory / f"scrubbed-{name.split('.')[0]}"
    with Bank(t, directory, checkpoint_log=checkpoint_log, scrub_hours=0.0003) as bank:
        bank.work(0.5)
        wait_until(lambda: all(list((bank.directory / "files").glob(f"data-{n}/{name}")) for n in (1, 2)), 60, f"there is a {name}")
        bank.close_books()  # so that no checkpoint replaces those that rot
        logs = [bank.directory / f"data-{node}.log" for node in (1, 2)]
        sizes = {log: log.stat().st_size for log in logs}
        files = [path for path in bank.directory.glob(f"files/data-*/{name}") if synced_part(path) > 0]
        [flip(path, synced_part(path) // 2) for path in files]
        repaired = re.compile(r"scrub: checkpoint \d+ has everything")
        wait_until(lambda: all(repaired.search(log.read_text()[sizes[log] :]) for log in logs), 60, "both have found and repaired it")
        found = [line for log in logs for line in log.read_text()[sizes[log] :].splitlines() if "scrub:" in line and "is damaged" in line]
        t.say(found[0])
        bank.work(0.3)
        bank.kill_all()
        sizes = {log: log.stat().st_size for log in logs}
        bank.start()
        [bank.cluster.wait_up(node) for node in (1, 2)]
        bank.check_nothing_lost()
        said = "".join(log.read_text()[sizes[log] :] for log in logs)
        check("damaged" not in said, f"a start meets damage:\n{said}")


def main(t):
    reason = can_mount()
    if reason:
        t.say(f"not run: all cases with disks of our own, for {reason}")
    else:
        with t.case(f"class disk: nothing is lost by {ROUNDS} losses of power, whatever the disks had not written"):
            lose_power(t)
        with t.case("a full disk refuses changes, not reads, and takes changes again when there is room"):
            be_full(t)
        with t.case("a node whose syncs fail leaves, and comes back"):
            lose_a_disk(t, "failing", "syncs fail", "syncs work")
        with t.case("a node whose disk is silent leaves, and comes back"):
            lose_a_disk(t, "silent", "stall", "go")
        with t.case("all disks are silent at once: the cluster goes on, and changes are taken again when they answer"):
            hang_all(t)
    give_other_bytes(t)
    for name, checkpoint_log in (("lcp-0-*.data", 1), ("redo-0-*.log", NEVER)):
        with t.case(f"{name} of both living nodes rot: the scrubber finds it, and all is written anew"):
            rot_while_they_live(t, name, checkpoint_log)
    with t.case("the promises of the management node are damaged: it does not start, and says what to do"):
        promises_are_damaged(t)
    with t.case("the logs of all replicas are damaged: nobody serves, and nothing is changed"):
        be_rotten_everywhere(t)


if __name__ == "__main__":
    scenario_main(main)
