#!/usr/bin/env python3
"""Breaks a cluster of real processes in every way of the table and writes down what its clients felt.

    tests/process/measure.py --publish                        all rows, about 20 minutes; `make reliability` is the same
    tests/process/measure.py --publish --only kill-data,halves    some rows; the others keep what was measured last
    tests/process/measure.py --page                           only the page, of what was measured
    tests/process/measure.py --rounds 50                      a longer table: every row with ten times the rounds
    tests/process/measure.py --only kills --rounds 500 --minutes 20   so many rounds of kill -9; in parts, if 20 minutes are too short
    tests/process/measure.py --only history-committed,history-snapshot,history-locking --transactions 1000000     the long histories
    tests/process/measure.py --calm 3600              an hour without any fault on busy cores: nobody may be removed
    tests/process/measure.py --list                           the rows

Needs root, for network namespaces. Each row is a file of JSON that names its commit, date and machine (`results.py`), so that the page
can be made of rows that were measured one by one. Without --publish nothing of the repository is touched.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True

from lib.harness import Failure, check  # noqa: E402
from process import calm, histories, memory, report  # noqa: E402
from process.faults import BY_KEY, FAULTS, Round  # noqa: E402
from process.probe import Probe  # noqa: E402
from process.results import PAGE, PUBLISHED, UNPUBLISHED, Results, errors_of, stamp  # noqa: E402
from process.rig import ClusterLost, Rig  # noqa: E402

ROUNDS = 4
TRANSACTIONS = 100_000
# Rounds on one cluster; then a new one, so that the probe's memory stays small, and what there is of the row is saved.
ROUNDS_PER_CLUSTER = 30
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


def fault_window(rig, probe, fault, this):
    """What was felt, the states of the nodes in the end, and when the mending began. Of what is under way in a cluster that is frozen the
    outcome is known after that only."""
    if fault.freezes:
        probe.open_window(fault.key, fault.seconds, lambda: fault.strike(this))
        probe.tell("end")
        begin = time.monotonic()
        rig.mend()
        rig.wait_whole()
        felt, states = probe.answer(), None
        probe.ask("begin return")
        return felt, states, begin
    felt = probe.window(fault.key, fault.seconds, lambda: fault.strike(this))
    states = None if fault.blind else rig.states()
    probe.ask("begin return")
    begin = time.monotonic()
    rig.mend()
    return felt, states, begin


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
        felt, states, begin = fault_window(rig, probe, fault, this)
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


def one_cluster(directory, fault, numbers, row, say, is_late):
    """Some rounds on a cluster of their own, fewer when the time is over, and its audit. A Failure ends them."""
    groups, replicas = fault.shape
    with Rig(directory, groups * replicas, replicas, memory=fault.memory, mgmt_nodes=fault.mgmt_nodes, proxied=fault.proxied) as rig, \
            Probe(rig) as probe:
        lost = False
        try:
            for number in numbers:
                if is_late():
                    break
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


def measure_fault(fault, rounds, say, results=None, is_late=lambda: False):
    """All rounds of a row; those that an earlier run has left in `results` count. None: the time was over before, the rest is for a later run."""
    row = (results.part(fault.key) if results else None) or {"key": fault.key, "rounds": [], "audits": [], "failures": [], "done": 0}
    count = max(2, round(rounds * fault.weight))
    if row["done"]:
        say(f"{fault.key}: goes on after {row['done']} rounds")
    while row["done"] < count and len(row["failures"]) < 2:
        if is_late():
            say(f"{fault.key}: {row['done']} of {count} rounds; the same command goes on")
            return None
        begin, felt = row["done"], len(row["rounds"])
        numbers = range(begin, min(count, begin + ROUNDS_PER_CLUSTER))
        directory = pathlib.Path(tempfile.mkdtemp(prefix="apus-p-", dir="/tmp"))
        failed = False
        try:
            one_cluster(directory, fault, numbers, row, say, is_late)
        except Failure as failure:
            failed = True
            row["failures"].append(str(failure).splitlines()[0])
            say(f"{fault.key}: {failure}")
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        row["done"] = numbers[-1] + 1 if failed else begin + len(row["rounds"]) - felt
        if results:
            results.save_part(row)
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
    wrong = [r["removed"] for r in rounds if r["removed"] > fault.removed or r["removed"] < fault.removed and not fault.or_fewer]
    return {
        "key": row["key"],
        "rounds": len(rounds),
        # Of each round, in ms: the control's and the fault's.
        "gaps": [[round(r["control"]["gap_ms"], 1), round(r["felt"]["gap_ms"], 1)] for r in rounds],
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of a row of weight 1")
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS, help="of each history")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="leave histories here")
    parser.add_argument("--only", default="", help="keys of rows, separated by commas or spaces")
    parser.add_argument("--minutes", type=float, help="stop after the round that is under way then; the same command goes on")
    parser.add_argument("--calm", type=int, metavar="SECONDS", help="only the row `calm`, that long: no fault, all cores busy")
    parser.add_argument("--loops", type=int, default=2 * os.cpu_count(), help="busy loops of that row (0: something else keeps the cores busy)")
    parser.add_argument("--list", action="store_true", help="say which rows there are")
    parser.add_argument("--json", action="store_true", help="print each row as JSON when it is done")
    parser.add_argument("--publish", action="store_true", help=f"keep the rows in {PUBLISHED.name}/ of docs, and write the page")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--results", type=pathlib.Path, default=UNPUBLISHED, metavar="DIR", help="where rows are kept that are not published")
    arguments = parser.parse_args()
    results = Results(PUBLISHED if arguments.publish or arguments.page else arguments.results)
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else math.inf
    is_late = lambda: time.monotonic() > end
    rows = {f.key: lambda f=f: measure_fault(f, arguments.rounds, say, results, is_late) for f in FAULTS}
    rows["memory"] = lambda: memory.measure(max(2, arguments.rounds // 2), say)
    for key in histories.KINDS:
        rows[key] = lambda key=key: histories.measure(key, arguments.transactions, say, arguments.keep)
    # An hour long when it counts, so never measured unasked.
    rows["calm"] = lambda: calm.measure(arguments.calm or calm.SECONDS, arguments.loops, say)
    if arguments.list:
        print("\n".join(rows))
        return
    named = arguments.only.replace(",", " ").split()
    usual = [key for key in rows if key != "calm" and not (key in BY_KEY and BY_KEY[key].only_asked)]
    wanted = named + (["calm"] if arguments.calm and "calm" not in named else []) or usual
    unknown = set(wanted) - set(rows)
    check(not unknown, f"no such row: {', '.join(sorted(unknown))}")
    if not arguments.page:
        measure_all({key: rows[key] for key in wanted}, results, arguments.json, is_late)
    if arguments.page or arguments.publish:
        PAGE.write_text(report.document(results.rows()))


def measure_all(rows, results, prints, is_late):
    begin, missing = time.monotonic(), []
    for key, measured in rows.items():
        row = None if is_late() else measured()
        if row is None:
            missing.append(key)
            continue
        results.save(stamp(row))
        say(report.in_a_line(row))
        if prints:
            print(json.dumps(row, indent=1))
    say(f"{len(rows) - len(missing)} rows in {time.monotonic() - begin:.0f} s, in {results.folder}")
    if missing:
        sys.exit(f"not done, the same command goes on with them: {', '.join(missing)}")


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit("told to stop"))
    try:
        main()
    except Failure as failure:
        sys.exit(f"measure: {failure}")
