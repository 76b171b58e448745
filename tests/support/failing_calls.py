"""File calls that fail: every call on a file below a directory is counted, and chosen ones raise an OSError."""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import mmap
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

_OS_CALLS = (
    "open", "read", "write", "pread", "pwrite", "fsync", "ftruncate", "lseek", "stat", "lstat", "fstat", "statvfs",
    "listdir", "scandir", "mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link", "utime",
)  # fmt: skip


@dataclass
class FailingCalls:
    """Counts file calls below `root`; call `first` fails, and with `last` those up to it as well."""

    root: Path
    first: int = -1
    last: int = -1
    error: int = errno.EIO
    seen: list[str] = field(default_factory=list)
    """All calls: name and path below `root`."""
    failed: list[str] = field(default_factory=list)
    """The calls that failed, with the function of clearl that made them."""

    def check(self, name: str, place: str | None) -> None:
        """Count one call; raise if its turn has come."""
        if place is None or not (place == str(self.root) or place.startswith(f"{self.root}/")):
            return
        self.seen.append(f"{name} {place.removeprefix(str(self.root))}")
        if self.first <= len(self.seen) - 1 <= max(self.first, self.last):
            self.failed.append(f"{self.seen[-1]} in {_caller()}")
            raise OSError(self.error, os.strerror(self.error), place)

    @contextmanager
    def injected(self) -> Iterator[FailingCalls]:
        """Count, and fail, the calls of this process."""
        patches = [mock.patch.object(os, name, _counted(self, name, getattr(os, name))) for name in _OS_CALLS]
        patches += [
            mock.patch.object(fcntl, "flock", _counted(self, "flock", fcntl.flock)),
            mock.patch.object(mmap, "mmap", _counted(self, "mmap", mmap.mmap)),
            mock.patch.object(builtins, "open", _counted_open(self, builtins.open)),
        ]
        patches.append(mock.patch.object(io, "open", _counted_open(self, io.open)))  # what pathlib uses
        for patch in patches:
            patch.start()
        try:
            yield self
        finally:
            for patch in patches:
                patch.stop()


def _counted(calls: FailingCalls, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls.check(name, _place(args[0] if args else ".", kwargs.get("dir_fd")))
        return real(*args, **kwargs)

    return call


def _counted_open(calls: FailingCalls, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return `open` with reads and writes that are counted too: an open file makes them below Python."""

    def call(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        place = _place(file, None)
        calls.check("open", place)
        if "b" not in mode or place is None or not place.startswith(str(calls.root)):
            return real(file, mode, *args, **kwargs)
        raw = _CountedFile(calls, place, file, mode)
        return io.BufferedReader(raw) if "r" in mode else io.BufferedWriter(raw)

    return call


class _CountedFile(io.FileIO):
    def __init__(self, calls: FailingCalls, place: str, file: Any, mode: str) -> None:
        super().__init__(file, mode)
        self._check = lambda name: calls.check(name, place)

    def write(self, data: Any) -> int:
        self._check("write")
        return super().write(data)

    def readinto(self, buffer: Any) -> int:
        self._check("read")
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self._check("read")
        return super().readall()


_readlink = os.readlink


def _place(target: Any, directory: int | None) -> str | None:
    """Return the path that a call is about; None for what is no file."""
    try:
        if isinstance(target, int):
            return _readlink(f"/proc/self/fd/{target}")
        path = os.fsdecode(os.fspath(target))
        if directory is None:
            return os.path.abspath(path)
        return os.path.join(_readlink(f"/proc/self/fd/{directory}"), path)
    except (OSError, TypeError):
        return None


def _caller() -> str:
    """Return the innermost function of clearl on the stack."""
    frames = [frame for frame in traceback.extract_stack() if "/clearl/" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "another package"
