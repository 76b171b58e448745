"""The rows of a long run: closed parts, compressed, and `metrics.jsonl`, which holds the newest rows.

    metrics-000000000000000.jsonl.zst     rows from byte 0 on
    metrics-000000033554511.jsonl.zst     rows from that byte on
    metrics.jsonl                         the newest rows; its first row, of kind "continued", gives their first byte

A position counts the bytes of all rows as written, without that first row, so that closing a part changes no position.
`metrics.jsonl` decides: parts that start at or after its first byte are ignored. A part is written first, then
`metrics.jsonl` is replaced, each atomically, so that a crash in between neither loses nor duplicates a row.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from clearl.errors import CorruptFileError
from clearl.records.schema import METRICS_FILE, continued_row, decode, encode
from clearl.storage.files import link_or_copy, read_plain, write_atomically

PART_NBYTES = 1 << 25
"""The size in bytes at which the rows of `metrics.jsonl` are closed as a part."""
MOST_ROWS_NBYTES = 1 << 32
"""The most bytes of closed parts that one reader unpacks: a few small files of a stranger may hold terabytes."""
_MOST_PART_NBYTES = 1 << 30
_NAME = re.compile(r"metrics-(\d{15})\.jsonl\.zst")
_UNFINISHED = re.compile(r"metrics(-\d{15})?\.jsonl(\.zst)?\.\d+\.tmp")
_MOST_HEADER_NBYTES = 256
_MOST_FRAME_HEADER_NBYTES = 18
_CONTINUED = b'"kind":"continued"'


@dataclass(frozen=True)
class RowPart:
    """A closed part: the rows from byte `start` to byte `end`."""

    path: Path
    start: int
    end: int

    def read(self) -> bytes:
        """Return its rows; `CorruptFileError` if the file is damaged or missing."""
        import zstandard

        try:
            data = read_plain(self.path, cap_nbytes=_MOST_PART_NBYTES)
            if zstandard.frame_content_size(data) != self.end - self.start or self.end - self.start > _MOST_PART_NBYTES:
                raise CorruptFileError(f"{self.path} does not hold the rows from byte {self.start} to {self.end}")
            return zstandard.ZstdDecompressor().decompress(data)
        except zstandard.ZstdError as error:
            raise CorruptFileError(f"{self.path} is damaged ({error}); put it back from a copy") from None


class RowFiles:
    """The rows of one run at one moment: `metrics.jsonl` as it was when it was opened, and the parts before it."""

    def __init__(self, path: Path) -> None:
        """Open the `metrics.jsonl` at `path`; `FileNotFoundError` if there is none."""
        self.path, self._file = path, os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise CorruptFileError(f"{path} is no plain file")
            self.start, self._header_nbytes = read_start(self._file, path)
            self.end = self.start + os.fstat(self._file).st_size - self._header_nbytes
            self.parts = find_parts(path, self.start)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> RowFiles:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def chunks(self, start: int = 0) -> Iterator[bytes | RowPart]:
        """Yield the bytes from `start` on, file by file; for an unreadable part, yield the `RowPart` itself.

        Parts beyond `MOST_ROWS_NBYTES` count as unreadable.
        """
        unpacked = 0
        for part in self.parts:
            if part.end > start:
                unpacked += part.end - part.start
                try:
                    if unpacked > MOST_ROWS_NBYTES:
                        raise CorruptFileError(f"{self.path}: its parts hold more than {MOST_ROWS_NBYTES:,} bytes")
                    yield part.read()[max(0, start - part.start) :]
                except CorruptFileError:
                    yield part
        yield self._own(max(start, self.start), self.end)

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes from `start` to `end` (None: the end); `CorruptFileError` if some are missing."""
        end = self.end if end is None else end
        pieces = [
            part.read()[max(0, start - part.start) : end - part.start]
            for part in self.parts
            if part.end > start and part.start < end
        ]
        return b"".join([*pieces, self._own(max(start, self.start), end)])

    def _own(self, start: int, end: int) -> bytes:
        """Return bytes of `metrics.jsonl` itself, fewer where it ends."""
        return _read(self._file, start - self.start + self._header_nbytes, end - start)


def read_start(file: int, path: Path) -> tuple[int, int]:
    """Return the position that an open `metrics.jsonl` begins at, and the length of the row that records it."""
    line, newline, _ = os.pread(file, _MOST_HEADER_NBYTES, 0).partition(b"\n")
    if _CONTINUED not in line:
        return 0, 0
    try:
        start = decode(line)["start_bytes"] if newline else -1
    except CorruptFileError:
        start = -1
    if start < 0:
        raise CorruptFileError(f"{path}: line 1, which says how many rows lie in closed parts, is damaged")
    return start, len(line) + 1


def find_parts(path: Path, before: int) -> list[RowPart]:
    """Return the parts that hold the bytes before `before`, in their order."""
    if before == 0:
        return []
    parts: list[RowPart] = []
    starts = sorted({0, *(start for start in _starts(path) if start < before)})  # 0: its part may be missing
    for start, following in pairwise([*starts, before]):
        end = min(start + _rows_nbytes(_part_path(path, start)), following)
        parts.append(RowPart(_part_path(path, start), start, end if end > start else following))
        if start < end < following:  # the part in between is missing
            parts.append(RowPart(_part_path(path, end), end, following))
    return parts


def _rows_nbytes(part: Path) -> int:
    """Return the size of a part's rows as its zstd header records it; 0 if it does not."""
    import zstandard

    try:
        file = os.open(part, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
    except OSError:
        return 0
    try:
        return max(0, zstandard.frame_content_size(os.read(file, _MOST_FRAME_HEADER_NBYTES)))
    except (OSError, zstandard.ZstdError):
        return 0
    finally:
        os.close(file)


def close_part(path: Path, file: int) -> None:
    """Compress the rows of an open `metrics.jsonl` into a part, and leave the file without rows."""
    import zstandard

    start, header_nbytes = read_start(file, path)
    rows = _read(file, header_nbytes, os.fstat(file).st_size - header_nbytes)
    compressor = zstandard.ZstdCompressor(write_content_size=True, write_checksum=True)
    write_atomically(_part_path(path, start), compressor.compress(rows))
    write_atomically(path, _header(start + len(rows)))


def reopen_part(path: Path, position: int) -> None:
    """If `position` lies in a part, turn that part back into `metrics.jsonl`; rows after `position` are dropped."""
    with contextlib.suppress(FileNotFoundError), RowFiles(path) as files:
        for part in files.parts:
            if part.start <= position < part.end:
                rows = part.read()[: position - part.start]
                write_atomically(path, (_header(part.start) if part.start else b"") + rows)


def copy_rows(path: Path, target: Path, position: int) -> None:
    """Copy the rows before `position` to a `metrics.jsonl` at `target`; whole parts are linked where possible."""
    with RowFiles(path) as files:
        whole = [part for part in files.parts if part.end <= position]
        start = whole[-1].end if whole else 0
        for part in whole:
            part.read()  # raises if it is damaged
            link_or_copy(part.path, _part_path(target, part.start))
        write_atomically(target, (_header(start) if start else b"") + files.read(start, position))


def remove_parts(path: Path, start: int = 0) -> None:
    """Delete the parts from byte `start` on and unfinished files, which a crash or a resume left behind."""
    for name in _names(path):
        found, unfinished = _NAME.fullmatch(name), _UNFINISHED.fullmatch(name)
        if unfinished or (found and int(found[1]) >= start):
            path.with_name(name).unlink(missing_ok=True)


def is_part(name: str) -> bool:
    """Return whether a file of this name is a closed part."""
    return _NAME.fullmatch(name) is not None


def rows_nbytes(path: Path) -> int:
    """Return the bytes of all rows of a run."""
    with RowFiles(path) as files:
        return files.end


def _read(file: int, start: int, nbytes: int) -> bytes:
    """Return bytes of an open file, fewer where it ends."""
    pieces = []
    while nbytes > 0 and (piece := os.pread(file, nbytes, start)):
        pieces.append(piece)
        start, nbytes = start + len(piece), nbytes - len(piece)
    return b"".join(pieces)


def _header(start: int) -> bytes:
    return encode(continued_row(start_bytes=start))


def _starts(path: Path) -> list[int]:
    return [int(found[1]) for name in _names(path) if (found := _NAME.fullmatch(name))]


def _names(path: Path) -> list[str]:
    """Return the names of the files beside `metrics.jsonl`."""
    try:
        return os.listdir(path.parent)
    except FileNotFoundError:
        return []


def _part_path(path: Path, start: int) -> Path:
    return path.with_name(f"{METRICS_FILE.removesuffix('.jsonl')}-{start:015d}.jsonl.zst")
