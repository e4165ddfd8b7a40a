"""What was measured, a file of JSON for each row: its figures, and when, where and on which commit they were taken.

`docs/reliability/` has the rows that are published; docs/reliability.md is made of these files and of nothing else. A row that was interrupted is
in `KEY.part.json` beside the others' until it is done; it goes on only on the commit on which it began.
"""

import json
import os
import platform
import subprocess
import time

from lib.harness import BINARY, ROOT, TARGET

PUBLISHED = ROOT / "docs" / "reliability"
PAGE = ROOT / "docs" / "reliability.md"
UNPUBLISHED = TARGET / "reliability"


def commit():
    """`-dirty` where more than docs differ from it."""
    git = lambda *arguments: subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return git("describe", "--always", "--abbrev=10") + ("-dirty" if changed else "")


def machine():
    """Model of the processor, cores, memory and kernel."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}"


def stamp(row):
    row["date"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    row["commit"] = commit()
    row["machine"] = machine()
    row["load"] = round(os.getloadavg()[0], 1)
    row["profile"] = BINARY.parent.name
    return row


def errors_of(windows):
    """{code: [autocommit, explicit]} over all windows."""
    found = {}
    for window in windows:
        for error in window["errors"]:
            found.setdefault(str(error["code"]), [0, 0])[int(error["explicit"])] += error["count"]
    return found


class Results:
    """A folder of rows."""

    def __init__(self, folder):
        self.folder = folder

    def _path(self, key, part=False):
        return self.folder / f"{key}{'.part' if part else ''}.json"

    def rows(self):
        found = sorted(self.folder.glob("*.json")) if self.folder.exists() else []
        return {path.stem: json.loads(path.read_text()) for path in found if not path.stem.endswith(".part")}

    def save(self, row):
        self._write(self._path(row["key"]), row)
        self._path(row["key"], part=True).unlink(missing_ok=True)

    def part(self, key):
        """What there is of a row that was interrupted on this commit."""
        path = self._path(key, part=True)
        found = json.loads(path.read_text()) if path.exists() else {}
        return found.get("row") if found.get("commit") == commit() else None

    def save_part(self, row):
        self._write(self._path(row["key"], part=True), {"commit": commit(), "row": row})

    def _write(self, path, content):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        temporary.replace(path)
