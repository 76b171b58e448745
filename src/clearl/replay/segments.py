"""Segment files: records one after another, only ever appended to or replaced whole; scanned with every crc checked."""

from __future__ import annotations

import mmap
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearl.errors import CorruptFileError, StorageError
from clearl.replay.framing import MAGIC, Header, ShardKey, is_whole, read_header, record_label
from clearl.replay.labels import LABEL, as_row
from clearl.seeding import unroll_number
from clearl.storage.files import storage_error, sync_directory

_MAX_SEGMENT_NBYTES = 1 << 32
_MAX_SEQUENCE = 1 << 62


class FilePool:
    """Open segment files, at most `limit` of them for all shards of a process: thousands of slots have more files."""

    def __init__(self, limit: int = 128, *, read_only: bool = False) -> None:
        self.limit, self._access = limit, os.O_RDONLY if read_only else os.O_RDWR
        self._open: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def use(self, path: str, *, create: bool = False) -> Iterator[int]:
        """Give a file descriptor for reading and writing; nobody closes it while it is in use."""
        with self._lock:
            yield self._descriptor(path, create=create)

    def read(self, path: str, nbytes: int, offset: int) -> bytes:
        """Read as `os.pread` does; like `write` without the overhead of `use`, which takes as long as the reading."""
        with self._lock:
            return os.pread(self._descriptor(path), nbytes, offset)

    def write(self, path: str, data: bytes, offset: int) -> int:
        """Write as `os.pwrite` does."""
        with self._lock:
            return os.pwrite(self._descriptor(path), data, offset)

    def _descriptor(self, path: str, *, create: bool = False) -> int:
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            return descriptor
        while len(self._open) >= self.limit:
            os.close(self._open.popitem(last=False)[1])
        flags = self._access | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if create else 0)
        descriptor = self._open[path] = os.open(path, flags, 0o644)
        return descriptor

    def drop_below(self, directory: str) -> None:
        """Close the open files of a directory: an earlier user may not have closed them."""
        for path in [path for path in self._open if path.startswith(f"{directory}/")]:
            self.drop(path)

    def drop(self, path: str) -> None:
        """Close `path`, if it is open: it was replaced, removed or is no longer of interest."""
        with self._lock:
            descriptor = self._open.pop(path, None)
            if descriptor is not None:
                os.close(descriptor)


RECORD = np.dtype(
    [
        ("sequence", np.int64),
        ("number", np.uint64),
        ("segment", np.uint32),
        ("offset", np.uint32),
        ("length", np.uint32),
        ("label", LABEL),
    ]
)
"""The place of a record, and its label: one entry of the tables below."""


@dataclass
class SegmentScan:
    """The contents of one segment file."""

    records: np.ndarray
    """[n] of `RECORD`: the good ones, in the order of the file."""
    size: int
    damaged: int
    """Stretches that are no good record of this slot, a torn end apart."""
    torn_from: int | None
    """Offset of an incomplete last record; None if the file ends with a whole one, good or bad."""


def scan_segment(files: FilePool, path: str, segment: int, key: ShardKey) -> SegmentScan:
    """Read a segment file and check every record; after damage, continue at the next record that is whole."""
    try:
        with files.use(path) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size >= _MAX_SEGMENT_NBYTES:
                raise CorruptFileError(f"{path} is no segment of a replay shard; remove it")
            if status.st_size == 0:
                return _scan(b"", segment, key)
            with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
                return _scan(data, segment, key)
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error.strerror}; remove it to go on without it") from error


def _scan(data: bytes | mmap.mmap, segment: int, key: ShardKey) -> SegmentScan:
    found: list[tuple[int, int, int, int, int, tuple[int, int, float]]] = []
    offset, size, damaged, torn_from = 0, len(data), 0, None
    while offset < size:
        header = _whole_header(data, offset, key)
        if header is not None:
            if header.slot == key.slot and header.number == unroll_number(key.stream, header.sequence):
                label = as_row(record_label(data, header, offset))
                found.append((header.sequence, header.number, segment, offset, header.length, label))
            else:
                damaged += 1
            offset += header.length
            continue
        resumed = _next_whole(data, offset + 1, key)
        if resumed is None and _is_cut_off(data, offset):
            torn_from = offset
        else:
            damaged += 1
        offset = size if resumed is None else resumed
    return SegmentScan(np.array(found, RECORD), size, damaged, torn_from)


def _whole_header(data: bytes | mmap.mmap, offset: int, key: ShardKey) -> Header | None:
    header = read_header(data, offset)
    if header is None or header.length > key.max_record_nbytes or header.sequence >= _MAX_SEQUENCE:
        return None
    return header if is_whole(data, header, offset) else None


def _is_cut_off(data: bytes | mmap.mmap, offset: int) -> bool:
    header = read_header(data, offset)
    return header is None or offset + header.length > len(data)


def _next_whole(data: bytes | mmap.mmap, start: int, key: ShardKey) -> int | None:
    while (offset := data.find(MAGIC, start)) >= 0:
        if _whole_header(data, offset, key) is not None:
            return offset
        start = offset + 1
    return None


def append(files: FilePool, path: str, offset: int, record: bytes) -> None:
    """Write `record` at the end of a segment, which is at `offset`; if that fails the file is as it was."""
    try:
        written = files.write(path, record, offset)
        while written < len(record):  # a disk that is nearly full takes a part; the next attempt says why
            written += files.write(path, record[written:], offset + written)
    except OSError as error:
        with suppress(OSError), files.use(path) as descriptor:
            os.ftruncate(descriptor, offset)
        raise replay_error(path, len(record), error) from error


def replace_segment(files: FilePool, target: str, sources: list[tuple[str, np.ndarray]]) -> None:
    """Make `target` out of records [n] of `RECORD` from each of the `sources`: all of it or, on failure, nothing."""
    temporary = f"{target}.tmp"
    try:
        with open(temporary, "wb") as out:
            for path, records in sources:
                with files.use(path) as descriptor:
                    for offset, length in zip(records["offset"].tolist(), records["length"].tolist(), strict=True):
                        out.write(os.pread(descriptor, length, offset))
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, target)
        sync_directory(os.path.dirname(target))
    except OSError as error:
        with suppress(OSError):
            Path(temporary).unlink(missing_ok=True)
        raise replay_error(target, sum(int(r["length"].sum()) for _, r in sources), error) from error
    files.drop(target)


def replay_error(path: str, needed: int, error: OSError) -> StorageError:
    """Return the error for a write of `needed` bytes that failed."""
    return storage_error(path, error, needed=needed, then="Go on with the same command when that is mended")
