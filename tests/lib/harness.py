"""What every scenario uses: cases that are counted, conditions that are waited for, processes that never outlive us."""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = pathlib.Path(os.environ.get("APUS", TARGET / "release" / "apus"))
# The tools that break things are built beside the binary.
CHAOS = pathlib.Path(os.environ.get("APUS_CHAOS", BINARY.parent / "apus-chaos"))
CHAOS_DISK = CHAOS.with_name("apus-chaos-disk")
CLIENTS = TARGET / "test-clients"
# FULL=1 runs the long forms that the issue asks for; without it everything fits into CI.
FULL = os.environ.get("FULL", "") not in ("", "0")

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class Failure(Exception):
    """A condition that does not hold; its text is all that is shown."""


def check(condition, message):
    if not condition:
        raise Failure(message)


def check_equal(found, wanted, what):
    if found != wanted:
        raise Failure(f"{what}: found {found!r}, wanted {wanted!r}")


def wait_until(condition, seconds, what):
    """Polls until `condition()` is true and returns its value; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    last = None
    while True:
        try:
            value = condition()
            if value:
                return value
        except Failure as failure:
            last = failure
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds} s: {what}" + (f" ({last})" if last else ""))
        time.sleep(0.02)


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def die_with_parent():
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def spawn(command, **options):
    """Starts a process that gets SIGTERM when this one dies."""
    return subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, **options)


def end(process, seconds=15):
    """Ends a process by SIGTERM, by SIGKILL if it does not listen; its return code."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(seconds)
    return process.returncode


def run(command, seconds=60, stdin=None, env=None, ok=True, before=None):
    """Runs a command to its end; (return code, stdout + stderr). With `ok` anything but 0 is a failure. `before` is called in
    the new process first."""
    command = [str(c) for c in command]

    def prepare():
        die_with_parent()
        if before:
            before()

    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=prepare,
        env=env,
    )
    try:
        out, _ = process.communicate(stdin.encode() if stdin is not None else None, timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        raise Failure(f"{' '.join(command)} did not end within {seconds} s:\n{tail(out.decode(errors='replace'))}") from None
    text = out.decode(errors="replace")
    if ok and process.returncode != 0:
        raise Failure(f"{' '.join(command)} ended with {process.returncode}:\n{tail(text)}")
    return process.returncode, text


class Tool:
    """A process that takes commands by lines on its standard input, and answers each by a line `ok ...` or `error ...`."""

    def __init__(self, command, log):
        self.name, self.log = pathlib.Path(command[0]).name, open(log, "wb")
        self.process = subprocess.Popen(
            [str(c) for c in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            preexec_fn=die_with_parent,
        )

    def tell(self, command):
        """The answer without its ok."""
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
            return self.answer(command)
        except BrokenPipeError:
            raise Failure(f"{self.name} is gone") from None

    def answer(self, command="its start"):
        answer = self.process.stdout.readline().decode().strip()
        word, _, rest = answer.partition(" ")
        check(word == "ok", f"{self.name} answered {answer!r} to {command!r}")
        return rest

    def end(self):
        """It ends with its input."""
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        end(self.process)
        self.process.stdout.close()
        self.log.close()


def tail(text, lines=25):
    return "\n".join(text.rstrip().splitlines()[-lines:])


class Scenario:
    """Counts the cases of one scenario and holds what must be cleaned up after it."""

    def __init__(self, name):
        self.name = name
        self.passed, self.failures = 0, []
        self.cleanup = contextlib.ExitStack()
        # Short, because a Unix socket's path may have only 108 bytes.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="apus-t-", dir="/tmp"))
        self.cleanup.callback(shutil.rmtree, self.directory, ignore_errors=True)

    def say(self, text):
        print(f"    {text}", flush=True)

    def record(self, name, error=None, seconds=0.0):
        if error is None:
            self.passed += 1
            print(f"  ok    {self.name}: {name} ({seconds:.1f} s)", flush=True)
        else:
            indented = "\n".join("        " + line for line in str(error).splitlines())
            self.failures.append(f"  FAIL  {self.name}: {name}\n{indented}")
            print(self.failures[-1], flush=True)

    @contextlib.contextmanager
    def case(self, name):
        """One counted case. What goes wrong inside fails the case, not the scenario."""
        start = time.monotonic()
        try:
            yield
        except Failure as failure:
            self.record(name, failure)
        except Exception:
            self.record(name, traceback.format_exc())
        else:
            self.record(name, None, time.monotonic() - start)

    def cases_of(self, output, what):
        """Counts `ok NAME` and `FAIL NAME: reason` lines of a client program written in another language."""
        seen = 0
        for line in output.splitlines():
            if line.startswith("ok "):
                self.record(f"{what} {line[3:]}")
                seen += 1
            elif line.startswith("FAIL "):
                self.record(f"{what} {line[5:].split(':', 1)[0]}", line)
                seen += 1
        if not seen:
            self.record(what, f"printed no case:\n{tail(output)}")


def scenario_main(function):
    """Entry point of a scenario file: `if __name__ == "__main__": scenario_main(main)`."""
    name = pathlib.Path(sys.argv[0]).stem
    scenario = Scenario(name)

    def stop(*_):
        # A second one does not come between the ends of its processes.
        signal.signal(signal.SIGTERM, lambda *_: None)
        sys.exit(f"{name}: told to stop")

    signal.signal(signal.SIGTERM, stop)
    try:
        with scenario.cleanup:
            function(scenario)
    except Failure as failure:
        scenario.record("scenario", failure)
    except SystemExit as stopped:
        scenario.record("scenario", stopped.code)
    except Exception:
        scenario.record("scenario", traceback.format_exc())
    if os.environ.get("APUS_TEST_RESULT"):
        pathlib.Path(os.environ["APUS_TEST_RESULT"]).write_text(json.dumps([scenario.passed, scenario.failures]))
    sys.exit(1 if scenario.failures else 0)
