#!/usr/bin/env python3
"""Breaks a cluster of real processes in every way of the table and writes down what its clients felt.

    tests/process/measure.py --write docs/reliability.md      all rows, about 13 minutes; `make reliability` is the same
    tests/process/measure.py --rounds 50                      a longer table: every row with ten times the rounds
    tests/process/measure.py --only kill-data,halves          some rows; the others keep what was measured last
    tests/process/measure.py --only history-committed,history-snapshot,history-locking --transactions 1000000     the long histories
    tests/process/measure.py --calm 3600              an hour without any fault on busy cores: nobody may be removed
    tests/process/measure.py --list                           the rows

Needs root, for network namespaces. Results are kept as JSON (--results), a row at a time, so that the document can be made of
rows that were measured one by one; every row names its commit and its date.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True

from lib.harness import BINARY, ROOT, TARGET, Failure, check  # noqa: E402
from process import calm, histories, memory, report  # noqa: E402
from process.faults import FAULTS, Round  # noqa: E402
from process.probe import Probe  # noqa: E402
from process.report import errors_of  # noqa: E402
from process.rig import ClusterLost, Rig  # noqa: E402

ROUNDS = 4
TRANSACTIONS = 100_000
# Rounds on one cluster; then a new one, so that the probe's memory stays small.
ROUNDS_PER_CLUSTER = 60
# Traffic after the cluster is whole again, which belongs to the window of the return.
AFTER = 0.3


def one_round(rig, probe, fault, number, say):
    """A control window, the same window with the fault, and the return: what was felt."""
    lives = rig.lives()
    try:
        return felt_in(rig, probe, fault, number, lives, say)
    except Failure:
        # What failed then failed for this reason.
        if not fault.all_end:
            rig.check_not_lost(lives)
        raise


def tell_strays(rig, strays, what, say):
    """A node that was removed and that nobody did anything to: the worst that a failure detector can do."""
    if strays:
        say(f"{what}: REMOVED WITHOUT CAUSE: " + ", ".join(f"{name} ({reason})" for name, reason in strays.items()))
        say(rig.logs())


def felt_in(rig, probe, fault, number, lives, say):
    control = probe.window("control", fault.seconds)
    early = rig.strays(lives)
    tell_strays(rig, early, f"{fault.key} {number + 1}, in the control window", say)
    if early:
        rig.wait_whole()
        rig.check_not_lost(lives)
        lives = rig.lives()
    this = Round(rig, number)
    if fault.prepare:
        fault.prepare(this)
    try:
        felt = probe.window(fault.key, fault.seconds, lambda: fault.strike(this))
        states = None if fault.blind else rig.states()
        probe.ask("begin return")
        begin = time.monotonic()
        rig.mend()
    finally:
        this.finish()
    rig.wait_whole()
    whole_seconds = time.monotonic() - begin
    if not fault.all_end:
        rig.check_not_lost(lives)
    time.sleep(AFTER)
    returned = probe.ask("end")
    probe.ask("home")
    # Whoever was removed has ended, and runs again.
    removed = len(rig.ended_since(lives))
    strays = rig.strays(lives, this.touched, states)
    tell_strays(rig, strays, f"{fault.key} {number + 1}", say)
    return {"control": control, "felt": felt, "returned": returned, "removed": removed, "whole_seconds": whole_seconds,
            "strays": early | strays}


def one_cluster(directory, fault, numbers, row, say):
    """Some rounds on a cluster of their own, and its audit. A Failure ends them."""
    groups, replicas = fault.shape
    with Rig(directory, groups * replicas, replicas, memory=fault.memory, mgmt_nodes=fault.mgmt_nodes, proxied=fault.proxied) as rig, \
            Probe(rig) as probe:
        lost = False
        try:
            for number in numbers:
                found = one_round(rig, probe, fault, number, say)
                row["rounds"].append(found)
                felt, control = found["felt"], found["control"]
                say(f"{fault.key} {number + 1}: gap {felt['gap_ms']:.1f} ms, control {control['gap_ms']:.1f} ms, "
                    f"removed {found['removed']}, whole after {found['whole_seconds']:.2f} s, errors {errors_of([felt]) or 'none'}")
        except ClusterLost:
            lost = True
            raise
        finally:
            # Of a cluster that began anew the audit could say only what is known already.
            if not lost:
                audit_into(row, probe)
        rig.check_no_crash()


def audit_into(row, probe):
    try:
        row["audits"].append(probe.audit())
    except Failure as failure:
        row["failures"].append(f"audit: {str(failure).splitlines()[0]}")


def measure_fault(fault, rounds, say):
    """All rounds of a row."""
    row = {"key": fault.key, "rounds": [], "audits": [], "failures": []}
    count = max(2, round(rounds * fault.weight))
    done = 0
    while done < count and len(row["failures"]) < 2:
        numbers = range(done, min(count, done + ROUNDS_PER_CLUSTER))
        directory = pathlib.Path(tempfile.mkdtemp(prefix="apus-p-", dir="/tmp"))
        try:
            one_cluster(directory, fault, numbers, row, say)
        except Failure as failure:
            row["failures"].append(str(failure).splitlines()[0])
            say(f"{fault.key}: {failure}")
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        done = numbers[-1] + 1
    return summarize(fault, row)


def quantile(values, q):
    """The smallest value that so large a share of all does not exceed; the maximum where there are too few to tell."""
    values = sorted(values)
    return values[max(0, math.ceil(q * len(values)) - 1)] if values else None


def spread(values):
    return {"n": len(values), "p50": quantile(values, 0.5), "p99": quantile(values, 0.99), "max": quantile(values, 1.0)}


def summarize(fault, row):
    """What the document says of a row."""
    rounds = row["rounds"]
    felt = [r["felt"] for r in rounds]
    flight = [ms for w in felt for ms in (w["in_flight"] or {}).get("known_after_ms", [])]
    after_removal = [ms for w in felt for ms in (w["in_flight"] or {}).get("known_after_removal_ms", [])]
    strays = [f"{name} ({reason})" for r in rounds for name, reason in r["strays"].items()]
    verdict = None
    gap, control = spread([w["gap_ms"] for w in felt]), spread([r["control"]["gap_ms"] for r in rounds])
    if fault.goal and rounds:
        beyond = (gap["p99"] - control["p99"], gap["max"] - control["max"])
        verdict = all(found <= goal for found, goal in zip(beyond, fault.goal))
    wrong = [r["removed"] for r in rounds if r["removed"] != fault.removed]
    return {
        "key": row["key"],
        "rounds": len(rounds),
        "gap": gap,
        "control": control,
        "latency_max": spread([w["latency_ms"]["max"] for w in felt])["max"],
        "errors": errors_of(felt),
        "writes": sum(w["writes"] for w in felt),
        "unknown": sum(w["unknown"] for w in felt),
        "unanswered": sum(w["unanswered"] for w in felt),
        "in_flight": spread(flight),
        "in_flight_after_removal": spread(after_removal),
        "return_gap": spread([r["returned"]["gap_ms"] for r in rounds]),
        "return_errors": errors_of([r["returned"] for r in rounds]),
        "whole_seconds": spread([r["whole_seconds"] for r in rounds]),
        "wrong_removals": wrong,
        "strays": strays,
        "acknowledged": sum(a["acknowledged"] for a in row["audits"]),
        "lost": sum(a["lost"]["count"] for a in row["audits"]),
        "audits_good": all(a["good"] for a in row["audits"]) and bool(row["audits"]),
        "failures": row["failures"],
        "goal_met": verdict and not wrong and not strays and not row["failures"] if verdict is not None else None,
    }


def stamp(row):
    """When, where and on which commit a row was measured."""
    git = lambda *arguments: subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    row["date"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    row["commit"] = git("describe", "--always", "--abbrev=10") + ("-dirty" if changed else "")
    row["cores"] = os.cpu_count()
    row["load"] = round(os.getloadavg()[0], 1)
    row["profile"] = BINARY.parent.name
    return row


def save(results, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=1))
    temporary.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of a row of weight 1")
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS, help="of each history")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="leave histories here")
    parser.add_argument("--only", default="", help="keys of rows, separated by commas")
    parser.add_argument("--calm", type=int, metavar="SECONDS", help="only the row `calm`, that long: no fault, all cores busy")
    parser.add_argument("--loops", type=int, default=2 * os.cpu_count(), help="busy loops of that row (0: something else keeps the cores busy)")
    parser.add_argument("--list", action="store_true", help="say which rows there are")
    parser.add_argument("--results", type=pathlib.Path, default=TARGET / "reliability.json", help="where results are kept")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="write the document")
    arguments = parser.parse_args()
    rows = {fault.key: lambda fault=fault: measure_fault(fault, arguments.rounds, say) for fault in FAULTS}
    rows["memory"] = lambda: memory.measure(max(2, arguments.rounds // 2), say)
    for key in histories.KINDS:
        rows[key] = lambda key=key: histories.measure(key, arguments.transactions, say, arguments.keep)
    usual = list(rows)
    # An hour long when it counts, so never measured unasked.
    rows["calm"] = lambda: calm.measure(arguments.calm or calm.SECONDS, arguments.loops, say)
    if arguments.list:
        print("\n".join(rows))
        return
    named = [key for key in arguments.only.split(",") if key]
    wanted = named + (["calm"] if arguments.calm and "calm" not in named else []) or usual
    unknown = set(wanted) - set(rows)
    check(not unknown, f"no such row: {', '.join(sorted(unknown))}")
    results = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}
    begin = time.monotonic()
    for key in wanted:
        results[key] = stamp(rows[key]())
        save(results, arguments.results)
    say(f"{len(wanted)} rows in {time.monotonic() - begin:.0f} s")
    if arguments.write:
        arguments.write.write_text(report.document(results))


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit("told to stop"))
    try:
        main()
    except Failure as failure:
        sys.exit(f"measure: {failure}")
