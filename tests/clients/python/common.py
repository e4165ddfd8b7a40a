"""What the applications of this folder share: checks, and a loop that writes until it is told to stop."""

import json
import sys
import threading


def same(found, wanted, what):
    if found != wanted:
        raise SystemExit(f"{what}: {found!r}, not {wanted!r}")


def refused(kind, action, what):
    """The error, which must be of a class of the library, and so carry MySQL's number."""
    try:
        action()
    except kind as error:
        return getattr(error, "orig", error).args[0]
    raise SystemExit(f"{what} was not refused")


def write(one, errors):
    """Runs `one(number)` for 1, 2, 3 until a line comes in; a transaction that MySQL rolled back as a deadlock runs again."""
    stop, done, retried = threading.Event(), 0, 0
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    print("writes", flush=True)
    while not stop.is_set():
        try:
            one(done + 1)
            done += 1
        except errors as error:
            if getattr(error, "orig", error).args[0] != 1213:
                raise
            retried += 1
    print(json.dumps({"numbers": done, "retried": retried}))


def main(steps):
    port, database, step = sys.argv[1:]
    steps[step](int(port), database)
