"""A disk that is full when a test says so: a small tmpfs that only this process sees, or else a limit on file sizes."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_RECURSIVE, _PRIVATE = 0x4000, 0x40000


class SmallDisk:
    """Call it in a process of its own: the mount ends with the process, whatever becomes of it."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self.path = path
        self.path.mkdir(parents=True, exist_ok=True)
        self.kind = "tmpfs" if _mount_tmpfs(path, nbytes) else "limit on file sizes"

    @contextmanager
    def only(self, nbytes: int) -> Iterator[None]:
        """In the block no more than `nbytes` can be written (in all; where there is no tmpfs, to any one file)."""
        if self.kind == "tmpfs":
            ballast = self.path / "ballast"
            usage = os.statvfs(self.path)
            with open(ballast, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, usage.f_bavail * usage.f_frsize - nbytes))
            yield
            ballast.unlink()
        else:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
            yield
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _mount_tmpfs(path: Path, nbytes: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS) != 0 and libc.unshare(_NEW_MOUNTS | _NEW_USER) != 0:
        return False
    if libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None) != 0:
        return False
    return libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, f"size={nbytes}".encode()) == 0
