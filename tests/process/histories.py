"""Histories of list transactions on real processes under kills, judged: `apus bench append`, `apus check-history`."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from lib.harness import BINARY, Failure, check, die_with_parent, end, run, tail

from .faults import Round, kill_junior, kill_president, kill_two, stop_junior
from .rig import Rig

# How reads are made, the level that the history must then allow, what it is called, lists appended to at a time. Locking reads
# upgrade their locks, so that few lists mean little but deadlocks.
KINDS = {
    "history-committed": ("committed", "strict-read-committed", "committed reads", 48),
    "history-snapshot": ("snapshot", "strict-snapshot-reads", "reads at a snapshot", 48),
    "history-locking": ("locking", "strict-serializable", "locking reads", 160),
}
# In turn; each undone when the removal has been seen.
FAULTS = [kill_junior, kill_president, kill_two, stop_junior]
# From a whole cluster to the next fault.
PAUSE = 2.0
MEMORY_MIB = 1024


def disturb(rig, load, row, say):
    """Faults in turn until the load ends."""
    number = 0
    while True:
        try:
            load.wait(PAUSE)
            return
        except subprocess.TimeoutExpired:
            pass
        lives = rig.lives()
        this = Round(rig, number)
        FAULTS[number % len(FAULTS)](this)
        number += 1
        time.sleep(1.0)
        rig.mend()
        rig.wait_whole()
        row["faults"] = number
        rig.check_not_lost(lives)
        strays = rig.strays(lives, this.touched)
        if strays:
            row["strays"] += [f"{name} ({reason})" for name, reason in strays.items()]
            say(f"{row['key']}, fault {number}: REMOVED WITHOUT CAUSE: {strays}\n{rig.logs()}")
        if number % 20 == 0:
            say(f"{row['key']}: {number} faults")


def judge(history, level):
    """(whether it holds, what check-history printed)."""
    code, text = run([BINARY, "check-history", f"--level={level}", history], seconds=900, ok=False)
    check(code in (0, 1), f"apus check-history ended with {code}: {tail(text)}")
    return code == 0, text.strip()


def measure(key, transactions, say, keep=None):
    """One history; `keep` is where its file goes, if it is wanted."""
    reads, level, _, active = KINDS[key]
    row = {"key": key, "level": level, "faults": 0, "strays": [], "failures": [], "transactions": transactions}
    directory = pathlib.Path(tempfile.mkdtemp(prefix="apus-p-", dir=keep or "/tmp"))
    history = directory / "history.edn"
    try:
        with Rig(directory / "nodes", memory=MEMORY_MIB, sql_nodes=0) as rig:
            command = [BINARY, "bench", "append", f"--mgmt={rig.mgmt_addresses}", f"--history={history}", f"--reads={reads}"]
            command += [f"--client-secret={rig.secrets['client']}", f"--transactions={transactions}", f"--active={active}"]
            log = directory / "append.log"
            with open(log, "wb") as out, open(directory / "append.json", "wb") as answer:
                load = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=answer, stderr=out,
                                        preexec_fn=die_with_parent)
                try:
                    disturb(rig, load, row, say)
                finally:
                    end(load)
            check(load.returncode == 0, f"apus bench append ended with {load.returncode}: {tail(log.read_text(), 3)}")
            row |= json.loads((directory / "append.json").read_text())
            rig.check_no_crash()
        row["bytes"] = os.path.getsize(history)
        begin = time.monotonic()
        row["holds"], row["verdict"] = judge(history, level)
        row["judge_seconds"] = time.monotonic() - begin
        say(f"{key}: {row['transactions']} transactions, {row['faults']} faults, {row['unknown']} unknown, {row['per_second']:.0f}/s\n{row['verdict']}")
    except Failure as failure:
        row["failures"].append(str(failure).splitlines()[0])
        say(f"{key}: {failure}")
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    row["goal_met"] = not row["failures"] and row["holds"]
    return row
