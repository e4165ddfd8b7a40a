"""A whole cluster and nothing but load: every core is kept busy, no fault is made, and nobody may be removed."""

import os
import pathlib
import shutil
import tempfile
import time

from lib.harness import Failure, check, end

from .faults import busy_loops
from .probe import Probe
from .results import errors_of
from .rig import ClusterLost, Rig

SECONDS = 60
# One line and one longest gap for each.
WINDOW_SECONDS = 60
# The goal is said of an hour; of less it is not judged.
GOAL_SECONDS = 3600


def cpu_times():
    """(busy, all) of all cores since the machine began, in ticks."""
    with open("/proc/stat") as stat:
        ticks = [int(word) for word in stat.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def window(rig, probe, seconds, row, say):
    """A minute: its longest gap, who was removed. Whoever ended is started again."""
    lives = rig.lives()
    probe.ask("begin calm")
    time.sleep(seconds)
    felt = probe.ask("end")
    strays = rig.strays(lives, states=rig.states())
    removals = [r["nodes"] for r in felt["removals"]]
    row["windows"].append({"seconds": felt["seconds"], "gap_ms": felt["gap_ms"], "latency_ms": felt["latency_ms"], "errors": felt["errors"],
                           "acknowledged": felt["acknowledged"], "unknown": felt["unknown"], "unanswered": felt["unanswered"]})
    say(f"calm {len(row['windows'])}: gap {felt['gap_ms']:.1f} ms, p99 {felt['latency_ms']['p99']:.1f} ms, load {os.getloadavg()[0]:.1f}, "
        f"removed {removals or 'nobody'}")
    if strays:
        row["strays"] += [f"{name} ({reason})" for name, reason in strays.items()]
        say(f"REMOVED WITHOUT CAUSE: {row['strays']}\n{rig.logs()}")
        rig.wait_whole()
        rig.check_not_lost(lives)


def run(rig, probe, seconds, loops, row, say):
    lost = False
    processes = busy_loops(loops)
    busy, total = cpu_times()
    begin = time.monotonic()
    try:
        while (left := seconds - (time.monotonic() - begin)) > 0:
            window(rig, probe, min(left, WINDOW_SECONDS), row, say)
    except ClusterLost:
        lost = True
        raise
    finally:
        row["seconds"] = time.monotonic() - begin
        now_busy, now_total = cpu_times()
        row["cpu_percent"] = 100 * (now_busy - busy) / max(1, now_total - total)
        row["load_end"] = round(os.getloadavg()[0], 1)
        for process in processes:
            end(process)
        if not lost:
            row["audit"] = probe.audit()
            row["removals"] = row["audit"]["removals"]


def felt_by_clients(row):
    """What the page says of all windows."""
    windows = row["windows"]
    if not windows:
        return None
    latencies = sorted(w["latency_ms"]["p99"] for w in windows)
    audit = row["audit"] or {"acknowledged": 0, "lost": {"count": None}}
    return {
        "gaps_ms": [w["gap_ms"] for w in windows],
        "latency_p99_ms": {"p50": latencies[len(latencies) // 2], "max": latencies[-1]},
        "errors": errors_of(windows),
        "unknown": sum(w["unknown"] for w in windows),
        "acknowledged": audit["acknowledged"],
        "lost": audit["lost"]["count"],
    }


def measure(seconds, loops, say):
    row = {"key": "calm", "wanted_seconds": seconds, "loops": loops, "seconds": 0, "cpu_percent": 0, "load_end": 0, "windows": [],
           "removals": [], "strays": [], "audit": None, "failures": []}
    directory = pathlib.Path(tempfile.mkdtemp(prefix="apus-p-", dir="/tmp"))
    try:
        # The probe's rows stay until its audit.
        with Rig(directory, memory=512 + seconds // 3) as rig, Probe(rig) as probe:
            lives = rig.lives()
            try:
                run(rig, probe, seconds, loops, row, say)
            except Failure:
                rig.check_not_lost(lives)
                raise
            check(row["audit"]["good"], f"the audit found a difference: {row['audit']}")
            rig.check_no_crash()
    except Failure as failure:
        row["failures"].append(str(failure).splitlines()[0])
        say(f"calm: {failure}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    row["felt"] = felt_by_clients(row)
    row["goal_met"] = not (row["failures"] or row["removals"] or row["strays"])
    return row
