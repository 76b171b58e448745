"""Append to `metrics.jsonl`: a row is whole or absent, whatever happens."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from clearl.errors import CorruptFileError, StorageError
from clearl.records.parts import PART_NBYTES, RowFiles, close_part, read_start, remove_parts, reopen_part
from clearl.records.schema import METRICS_FILE, Row, check_row, decode, encode
from clearl.storage.files import storage_error

_CHUNK_BYTES = 1 << 16


class MetricsWriter:
    """Appends rows to `RUN/metrics.jsonl`, each by one write.

    Opening it drops a torn tail. With `position` (of a checkpoint) it drops all later rows as well, so that a
    resumed run counts nothing twice. Only rows that record a resume are kept: each of them did happen.

    Once the file has `part_nbytes` of rows, they are closed as a compressed part; see `clearl.records.parts`.
    """

    def __init__(self, run_dir: Path, *, position: int | None = None, part_nbytes: int | None = None) -> None:
        self.path = Path(run_dir) / METRICS_FILE
        self._part_nbytes = PART_NBYTES if part_nbytes is None else part_nbytes
        self._next_part_nbytes = self._part_nbytes
        kept = [] if position is None else _resume_rows(self.path, position)
        try:
            if position is not None:
                check_position(self.path.parent, position)
                reopen_part(self.path, position)
            self._file = self._opened()
        except OSError as error:
            raise storage_error(self.path, error) from error
        try:
            self._start, self._header_nbytes = read_start(self._file, self.path)
            self._position = self._repair(position)
            os.ftruncate(self._file, self._offset)
            os.lseek(self._file, self._offset, os.SEEK_SET)
            remove_parts(self.path, self._start)
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
        """Bytes of rows written so far, in all parts; checkpoints store it."""
        return self._position

    @property
    def _offset(self) -> int:
        """Return the offset of `position` in `metrics.jsonl` itself."""
        return self._position - self._start + self._header_nbytes

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row. If it does not fit on the disk, remove what was written of it and raise `StorageError`."""
        check_row(row)
        if self._position - self._start >= self._next_part_nbytes:
            self._close_part()
        line = encode(row)
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._offset)
                os.lseek(self._file, self._offset, os.SEEK_SET)
            raise storage_error(self.path, error, needed=len(line)) from error
        self._position += len(line)

    def sync(self) -> None:
        """Make the rows so far survive a power cut; call it before a checkpoint that stores `position`."""
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
        if position is not None:
            return position
        end = _end_of_last_row(self._file, os.fstat(self._file).st_size)
        return self._start + end - self._header_nbytes

    def _opened(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _close_part(self) -> None:
        """Close the rows so far as a part. If the disk has no room for it, they stay in `metrics.jsonl`."""
        try:
            close_part(self.path, self._file)
        except StorageError:
            self._next_part_nbytes += self._part_nbytes
            return
        os.close(self._file)
        self._file = self._opened()
        self._start, self._header_nbytes = read_start(self._file, self.path)
        os.lseek(self._file, self._offset, os.SEEK_SET)
        self._next_part_nbytes = self._part_nbytes


def check_position(run_dir: Path, position: Any) -> None:
    """Raise `CorruptFileError` unless a row of the metrics file ends at byte `position`: runs can resume only there."""
    path = Path(run_dir) / METRICS_FILE
    if type(position) is not int:
        raise CorruptFileError(f"the checkpoint does not say where in {path} it was taken")
    try:
        with RowFiles(path) as files:
            before = files.read(_row_start(files, position), position) if 0 <= position <= files.end else b""
            ends = position == 0 or (before.endswith(b"\n") and _is_row(before))
            there = files.end
    except OSError as error:
        if position == 0 and isinstance(error, FileNotFoundError):
            return
        raise CorruptFileError(f"{path} cannot be read: {error.strerror}") from None
    if not ends:
        raise CorruptFileError(
            f"{path} has no row that ends at byte {position}, where the checkpoint says it went on "
            f"({there} bytes are there)"
        )


def _row_start(files: RowFiles, end: int) -> int:
    """Return the byte after the last newline before the row that ends at byte `end`; every file begins with a row."""
    first = max((start for start in (files.start, *(part.start for part in files.parts)) if start < end), default=0)
    begin = end
    while begin > first:
        begin = max(first, begin - _CHUNK_BYTES)
        found = files.read(begin, end - 1).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
    return first


def _resume_rows(path: Path, position: int) -> list[Row]:
    """Return the rows after byte `position` that record a resume."""
    try:
        with RowFiles(path) as files:
            tail = b"".join(chunk for chunk in files.chunks(position) if isinstance(chunk, bytes))
    except (OSError, CorruptFileError):
        return []
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
