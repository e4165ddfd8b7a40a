"""The servers that Apus is compared with, and the lines about the machine that stand above each table."""

import os
import pathlib
import shlex
import signal
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "scripts" / "perf"))

import compare  # noqa: E402
from lib.harness import Scenario, run  # noqa: E402
from lib.mariadb import MariaDb  # noqa: E402
from lib.mysql import VERSION, MySql  # noqa: E402

INNODB = ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=4G", "--performance-schema=OFF", "--max-connections=500"]
MARIADB = [*INNODB, "--innodb-log-file-size=1G", "--skip-log-bin"]
MYSQL = [*INNODB, "--innodb-redo-log-capacity=1G"]
INNODB_SETTINGS = "InnoDB: 4 GiB buffer pool, 1 GiB of log, no binary log, no performance schema, doublewrite as it comes"
SETTINGS = f"{INNODB_SETTINGS}; Apus: two data nodes, each row twice, in memory"


def mariadb(scenario):
    return scenario.cleanup.enter_context(MariaDb(scenario.directory / "m", tcp=True, options=MARIADB))


def mysql(scenario):
    return scenario.cleanup.enter_context(MySql(scenario.directory / "y", tcp=True, options=MYSQL))


def go_first():
    """This process and what it starts get a processor before all others, as on a machine of their own. Needs root."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def machine(servers=("mariadb", "mysql")):
    """Processors, load, commit, and the versions of the servers that Apus is compared with."""
    processors, commit = compare.host()
    load = f"load average {os.getloadavg()[0]:.1f}"
    if os.sched_getscheduler(0) == os.SCHED_RR:
        load += ", all that is measured at real-time priority"
    versions = {"mariadb": mariadb_version, "mysql": lambda: f"MySQL {VERSION}"}
    beside = ", ".join(versions[name]() for name in servers)
    return f"{processors}, {load}, {commit}" + (f"; {beside}" if beside else "")


def mariadb_version():
    _, version = run(["mariadbd", "--version"])
    return "MariaDB " + version.split("Ver ", 1)[-1].split(" for ", 1)[0]


def scenario(name):
    """A scenario whose servers and files go also when it is told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"{name}: told to stop"))
    return Scenario(name)


def command():
    """What was called, for whoever repeats it."""
    line = [f"scripts/perf/{pathlib.Path(sys.argv[0]).name}", *sys.argv[1:]]
    return f"Command: `{shlex.join(line)}`"


def put(path, name, text):
    """Puts a text between `<!-- NAME: begin -->` and `<!-- NAME: end -->` of a file."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, rest = path.read_text().split(begin, 1)
    _, foot = rest.split(end, 1)
    path.write_text(f"{head}{begin}\n{text}\n{end}{foot}")


def publish(args, name, text):
    """Prints what was measured, and puts it where `--write` says."""
    if args.write:
        put(pathlib.Path(args.write), name, text)
    print(f"\n{text}")
