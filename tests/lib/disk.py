"""Disks that break: `apus-chaos-disk` mounted somewhere, and a tmpfs of a size. Both need root."""

import contextlib
import os
import subprocess

from .harness import CHAOS_DISK, Tool, check, run


def can_mount():
    """Whether the tests of broken disks can run here, else why not."""
    if os.geteuid() != 0:
        return "only root can mount"
    return None if os.path.exists("/dev/fuse") else "there is no /dev/fuse"


class ChaosDisk(Tool):
    """A disk at `directory`, which must be there and empty. See crates/chaos-disk/src/main.rs for the commands."""

    def __init__(self, directory, log):
        super().__init__([CHAOS_DISK, directory], log)
        self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


@contextlib.contextmanager
def small_disk(directory, mib):
    """A tmpfs of so many MiB; what is yielded gives it another size."""
    directory.mkdir()
    run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=700", "apus-test", directory])
    try:
        yield lambda mib: run(["mount", "-o", f"remount,size={mib}m", directory])
    finally:
        code = subprocess.call(["umount", str(directory)])
        check(code == 0, f"{directory} cannot be unmounted: somebody is still in it")
