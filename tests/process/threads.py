"""Stops one thread of a process, for good or again and again, and leaves the others running, by ptrace: a worker that hangs or is slow, as no bug of
ours can be planted in a release."""

import ctypes
import os
import pathlib
import threading

from lib.harness import alive, check, wait_until

PTRACE_CONT = 7
PTRACE_DETACH = 17
PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
# waitpid: threads, too.
WALL = 0x40000000


def ptrace(request, tid):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    check(libc.ptrace(request, tid, None, None) == 0, f"ptrace {request:#x}: {os.strerror(ctypes.get_errno())}")


def thread_of(pid, name):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise AssertionError(f"process {pid} has no thread {name}")


class StoppedThread:
    """Stopped from now on; it is this process's to wait for once its own has ended."""

    def __init__(self, pid, name):
        self.tid = thread_of(pid, name)
        ptrace(PTRACE_SEIZE, self.tid)
        self.stop()

    def stop(self):
        ptrace(PTRACE_INTERRUPT, self.tid)
        wait_until(self.is_stopped, 5, f"thread {self.tid} stops")

    def is_stopped(self):
        tid, status = os.waitpid(self.tid, WALL | os.WNOHANG)
        return tid == self.tid and os.WIFSTOPPED(status)

    def has_ended(self):
        try:
            tid, status = os.waitpid(self.tid, WALL | os.WNOHANG)
        except ChildProcessError:
            return True
        return tid == self.tid and not os.WIFSTOPPED(status)


class SlowThread(threading.Thread):
    """Runs for `runs` seconds and stands still for `stands`, again and again, until `end` or its own end. Only the thread that began to trace may go on
    with it, so all of it is done in this one."""

    def __init__(self, pid, name, runs, stands):
        super().__init__(daemon=True)
        self.pid, self.name_of, self.runs, self.stands = pid, name, runs, stands
        self.ended = threading.Event()
        self.error = None

    def run(self):
        try:
            traced = StoppedThread(self.pid, self.name_of)
            while not self.ended.wait(self.stands):
                ptrace(PTRACE_CONT, traced.tid)
                self.ended.wait(self.runs)
                if traced.has_ended():
                    return
                traced.stop()
            ptrace(PTRACE_DETACH, traced.tid)
        except Exception as error:  # told by `end`; a thread may end between two looks at it
            self.error = error if alive(self.pid) else None

    def end(self):
        self.ended.set()
        self.join(10)
        check(self.error is None and not self.is_alive(), f"the thread could not be slowed: {self.error!r}")
