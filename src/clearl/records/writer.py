"""Appending to `metrics.jsonl`: a row is whole or absent, whatever happens."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from clearl.errors import CorruptFileError, StorageError
from clearl.records.schema import METRICS_FILE, check_row, decode, encode

_CHUNK_BYTES = 1 << 16


class MetricsWriter:
    """Appends rows to `RUN/metrics.jsonl`, each by one write.

    Opening it drops a torn tail. With `position` (of a checkpoint) it drops all that was written after that as well,
    so that a resumed run does not count anything twice.
    """

    def __init__(self, run_dir: Path, *, position: int | None = None) -> None:
        self.path = Path(run_dir) / METRICS_FILE
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._position = self._repair(position)
            os.ftruncate(self._file, self._position)
            os.lseek(self._file, self._position, os.SEEK_SET)
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
            written = os.write(self._file, line)
            problem = "the disk is full" if written < len(line) else None
        except OSError as error:
            problem = error.strerror
        if problem is not None:
            os.ftruncate(self._file, self._position)
            os.lseek(self._file, self._position, os.SEEK_SET)
            free = shutil.disk_usage(self.path.parent).free
            raise StorageError(f"{self.path}: {problem}; {len(line)} bytes needed, {free} free")
        self._position += len(line)

    def sync(self) -> None:
        """Make the rows so far survive a power cut; call it before a checkpoint that keeps `position`."""
        os.fsync(self._file)

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
        """The byte after the last row to keep."""
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
    finally:
        os.close(file)


def _check_position(file: int, path: Path, position: int) -> None:
    size = os.fstat(file).st_size
    if position < 0 or position > size or _end_of_last_row(file, position) != position:
        raise CorruptFileError(
            f"{path} has no row that ends at byte {position}, where the checkpoint says it went on "
            f"({size} bytes are there)"
        )


def _end_of_last_row(file: int, end: int) -> int:
    while end > 0:
        start = _line_start(file, end - 1)
        line = os.pread(file, end - start, start)
        if line.endswith(b"\n") and _is_row(line):
            return end
        end = start
    return 0


def _line_start(file: int, end: int) -> int:
    """The byte after the last newline before byte `end`."""
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
