"""Appending to `metrics.jsonl`: a row is whole or absent, whatever happens."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from clearl.errors import CorruptFileError
from clearl.records.schema import METRICS_FILE, Row, check_row, decode, encode
from clearl.storage.files import storage_error

_CHUNK_BYTES = 1 << 16


class MetricsWriter:
    """Appends rows to `RUN/metrics.jsonl`, each by one write.

    Opening it drops a torn tail. With `position` (of a checkpoint) it drops all that was written after that as well,
    so that a resumed run does not count anything twice. Only rows that tell of a resume are kept: each happened.
    """

    def __init__(self, run_dir: Path, *, position: int | None = None) -> None:
        self.path = Path(run_dir) / METRICS_FILE
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise storage_error(self.path, error) from error
        try:
            self._position = self._repair(position)
            kept = _resume_rows(self._file, self._position)
            os.ftruncate(self._file, self._position)
            os.lseek(self._file, self._position, os.SEEK_SET)
            for row in kept:
                self.write(row)
        except OSError as error:
            os.close(self._file)
            raise storage_error(self.path, error) from error
        except BaseException:
            os.close(self._file)
            raise

    @property
    def position(self) -> int:
        """Bytes written so far: what a checkpoint keeps."""
        return self._position

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row. If it does not fit on the disk, nothing of it stays and `StorageError` says so."""
        check_row(row)
        line = encode(row)
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._position)
                os.lseek(self._file, self._position, os.SEEK_SET)
            raise storage_error(self.path, error, needed=len(line)) from error
        self._position += len(line)

    def sync(self) -> None:
        """Make the rows so far survive a power cut; call it before a checkpoint that keeps `position`."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repair(self, position: int | None) -> int:
        """Return the byte after the last row to keep."""
        if position is None:
            return _end_of_last_row(self._file, os.fstat(self._file).st_size)
        _check_position(self._file, self.path, position)
        return position


def check_position(run_dir: Path, position: Any) -> None:
    """Raise `CorruptFileError` unless a row of the metrics file ends at byte `position`: only there a run can go on."""
    path = Path(run_dir) / METRICS_FILE
    if type(position) is not int:
        raise CorruptFileError(f"the checkpoint does not say where in {path} it was taken")
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if position == 0 and isinstance(error, FileNotFoundError):
            return
        raise CorruptFileError(f"{path} cannot be read: {error.strerror}") from None
    try:
        _check_position(file, path, position)
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(file)


def _check_position(file: int, path: Path, position: int) -> None:
    size = os.fstat(file).st_size
    if position < 0 or position > size or _end_of_last_row(file, position) != position:
        raise CorruptFileError(
            f"{path} has no row that ends at byte {position}, where the checkpoint says it went on "
            f"({size} bytes are there)"
        )


def _resume_rows(file: int, position: int) -> list[Row]:
    """Return the rows behind byte `position` that record a resume."""
    tail = os.pread(file, max(0, os.fstat(file).st_size - position), position)
    lines = [line for line in tail.splitlines(keepends=True) if b'"kind":"resume"' in line and line.endswith(b"\n")]
    return [decode(line) for line in lines if _is_row(line)]


def _end_of_last_row(file: int, end: int) -> int:
    while end > 0:
        start = _line_start(file, end - 1)
        line = os.pread(file, end - start, start)
        if line.endswith(b"\n") and _is_row(line):
            return end
        end = start
    return 0


def _line_start(file: int, end: int) -> int:
    """Return the byte after the last newline before byte `end`."""
    while end > 0:
        begin = max(0, end - _CHUNK_BYTES)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _is_row(line: bytes) -> bool:
    try:
        decode(line)
    except CorruptFileError:
        return False
    return True
