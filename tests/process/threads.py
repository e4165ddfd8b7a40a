"""Stops one thread of a process and leaves the others running, by ptrace: a worker that hangs, as no bug of ours can be planted in a release."""

import ctypes
import os
import pathlib

from lib.harness import check, wait_until

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
        ptrace(PTRACE_INTERRUPT, self.tid)
        wait_until(self.is_stopped, 5, f"thread {name} of {pid} stops")

    def is_stopped(self):
        tid, status = os.waitpid(self.tid, WALL | os.WNOHANG)
        return tid == self.tid and os.WIFSTOPPED(status)

    def has_ended(self):
        try:
            tid, status = os.waitpid(self.tid, WALL | os.WNOHANG)
        except ChildProcessError:
            return True
        return tid == self.tid and not os.WIFSTOPPED(status)
