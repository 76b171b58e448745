"""Read `metrics.jsonl` and its closed parts: whole rows only, whatever a crash or a bad disk left behind."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

from clearl.errors import CorruptFileError
from clearl.records.parts import MOST_ROWS_NBYTES, RowFiles, RowPart
from clearl.records.run_dir import read_meta
from clearl.records.schema import Row, decode
from clearl.storage.files import read_plain

_THIN_EVERY = 20
_TRAIN_MARK = b'"kind":"train"'
_EVAL_MARK, _SWITCH_MARK = b'"kind":"eval"', b'"switch":true'
_DIAGNOSTICS_MARK, _BY_TASK_MARK = b'"diagnostics":', b'"by_task":'
_TASK = re.compile(rb'"task":("(?:[^"\\]|\\.)*")')
_FRAMES = re.compile(rb'"frames":(\d+)')
_TAIL_NBYTES = 1 << 16
_LAST_BYTES = 128  # more than the checksum at the end of a row


@dataclass(frozen=True)
class Scan:
    """The contents of a metrics file."""

    rows: list[Row] = field(default_factory=list)
    damaged_lines: list[int] = field(default_factory=list)
    """Numbers (from 1) of lines before the last whole one that cannot be read."""
    torn_tail: bool = False
    """True if the file ends in the beginning of a row."""
    missing_bytes: int = 0
    """Bytes that the file has lost since the run ended and its meta data recorded the length."""


def scan_rows(path: Path, *, thin: str | None = None) -> Scan:
    """Read every whole row, and report damage. No file means no rows.

    Of the rows of kind `thin`, only a sample and the last are read: enough for their trend, in a fraction of the time.
    """
    data, nbytes, lost = _all_bytes(path)
    rows: list[Row] = []
    damaged, torn = _scan(data, lambda row, start, end: rows.append(row), thin)
    return Scan(rows, sorted({*damaged, *lost}), torn, max(0, _recorded_bytes(path.parent) - nbytes))


def _all_bytes(path: Path) -> tuple[bytes, int, dict[int, str]]:
    """Return the readable bytes of all rows, the size of all rows in bytes, and the unreadable files by line."""
    try:
        with RowFiles(path) as files:
            pieces, lines, lost = list[bytes](), 0, dict[int, str]()
            for chunk in files.chunks():
                if isinstance(chunk, RowPart):
                    lost[lines + 1] = str(chunk.path)
                else:
                    pieces.append(chunk)
                    lines += chunk.count(b"\n")
            return pieces[0] if len(pieces) == 1 else b"".join(pieces), files.end, lost
    except FileNotFoundError:
        return b"", 0, {}
    except CorruptFileError:  # the first row: what was before it is unknown
        data = read_plain(path, cap_nbytes=MOST_ROWS_NBYTES)
        return data, len(data), {1: str(path)}


def row_lines(path: Path) -> list[bytes]:
    """Return the undecoded lines of a metrics file and its parts, whole or not, for callers that need few of them."""
    return _all_bytes(path)[0].split(b"\n")


def _scan(data: bytes, keep: Callable[[Row, int, int], None], thin: str | None = None) -> tuple[list[int], bool]:
    """Pass every whole row and its bounds to `keep`; return the damaged lines, and whether the tail is torn."""
    lines, mark, start = data.count(b"\n"), f'"kind":"{thin}"'.encode(), 0
    damaged: list[int] = []
    bad: list[int] = []
    for number in range(1, lines + 1):
        end = data.index(b"\n", start)
        line, begun, start = data[start:end], start, end + 1
        if number % _THIN_EVERY and number < lines and mark in line:
            continue
        try:
            row = decode(line)
        except CorruptFileError:
            bad.append(number)
            continue
        damaged.extend(bad)
        bad = []
        keep(row, begun, end)
    return damaged, start < len(data) or bool(bad)


class StoredRows(Sequence[Row]):
    """Rows as they were written, decoded on access: decoded rows take eight times the memory."""

    def __init__(self, data: bytes, starts: array[int], ends: array[int]) -> None:
        """Take the bounds of each row in `data`: `starts` and `ends`."""
        self._data, self._starts, self._ends = data, starts, ends

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> StoredRows: ...
    def __getitem__(self, index: int | slice) -> Row | StoredRows:
        if isinstance(index, slice):
            return StoredRows(self._data, self._starts[index], self._ends[index])
        return decode(self._data[self._starts[index] : self._ends[index]])

    def chosen(self, wanted: Callable[[Row], bool]) -> StoredRows:
        """Return the rows for which `wanted` is true."""
        kept = [index for index, row in enumerate(self) if wanted(row)]
        starts, ends = (array("q", [bounds[index] for index in kept]) for bounds in (self._starts, self._ends))
        return StoredRows(self._data, starts, ends)


@dataclass(frozen=True)
class Position:
    """A place between two rows of a metrics file."""

    nbytes: int = 0
    last_bytes: bytes = b""
    """The last bytes before it: they differ once a resumed run has rewritten those rows."""


@dataclass(frozen=True)
class Followed:
    """The rows after a position, and where to look for the next ones."""

    rows: list[Row]
    position: Position
    rewound: bool = False
    """True if the run went back to a checkpoint: `rows` then replace all rows that were read before."""
    problem: str = ""
    """The reason why the file cannot be read, if it cannot."""


def follow(path: Path, position: Position | None = None, *, most_rows: int | None = None) -> Followed:
    """Return the rows appended to a metrics file after `position` (None: all); reads only those.

    A torn last row is left for the next call; a damaged one in between is skipped. Of more rows of training than
    `most_rows`, evenly spaced ones are returned, preferably with diagnostics; so of more evaluations between switches,
    for each task. A million rows would take half a minute to decode.
    """
    position = position or Position()
    try:
        with RowFiles(path) as files:
            rewound = _ends_otherwise(files, position)
            start = 0 if rewound else position.nbytes
            data = b"".join(chunk for chunk in files.chunks(start) if isinstance(chunk, bytes))
            end = files.end
    except FileNotFoundError:
        return Followed([], Position(), rewound=position.nbytes > 0)
    except CorruptFileError as error:  # the first row: what was before it is unknown
        return Followed([], position, problem=str(error))
    whole = data[: data.rfind(b"\n") + 1]
    if not whole:
        return Followed([], Position() if rewound else position, rewound)
    after = Position(end - (len(data) - len(whole)), whole[-_LAST_BYTES:])
    return Followed(list(_readable(_thinned(whole.splitlines(), most_rows))), after, rewound)


def _ends_otherwise(files: RowFiles, position: Position) -> bool:
    """Return whether the bytes before a position have changed: the run went back and rewrote them."""
    try:
        before = files.read(max(0, position.nbytes - len(position.last_bytes)), position.nbytes)
    except CorruptFileError:  # a part was damaged meanwhile: nothing to compare with
        return False
    return before != position.last_bytes


def _thinned(lines: list[bytes], most_rows: int | None) -> list[bytes]:
    if most_rows is None or len(lines) <= most_rows:
        return lines
    dropped = _spare_training(lines, most_rows) | _spare_evaluations(lines, most_rows)
    return [line for number, line in enumerate(lines) if number not in dropped]


def _spare_training(lines: list[bytes], most_rows: int) -> set[int]:
    """Return the numbers of the rows of training to leave out."""
    trained = [number for number, line in enumerate(lines) if _TRAIN_MARK in line]
    kept = {
        next((number for number in block if _DIAGNOSTICS_MARK in lines[number]), block[-1])
        for block in _blocks(trained, -(-len(trained) // most_rows))
    }
    counted = next((number for number in reversed(trained) if _BY_TASK_MARK in lines[number]), None)
    # Diagnostics and counts by task are in few rows: every n-th row could always be one without.
    return set(trained) - kept - {*trained[-1:], counted}


def _spare_evaluations(lines: list[bytes], most_rows: int) -> set[int]:
    """Return the numbers of the evaluations to leave out; those at switches and each task's last stay."""
    of_task: dict[bytes, list[int]] = {}
    for number, line in enumerate(lines):
        if _EVAL_MARK in line and _SWITCH_MARK not in line and (task := _TASK.search(line)):
            of_task.setdefault(task[1], []).append(number)
    every = -(-sum(map(len, of_task.values())) // most_rows)
    return {number for numbers in of_task.values() for block in _blocks(numbers, every) for number in block[:-1]}


def _blocks(numbers: list[int], length: int) -> list[list[int]]:
    return [numbers[start : start + length] for start in range(0, len(numbers), max(1, length))]


def _readable(lines: list[bytes]) -> Iterator[Row]:
    for line in lines:
        with suppress(CorruptFileError):
            yield decode(line)


def last_frames(path: Path) -> int | None:
    """Return the frames of the newest whole row of a metrics file; None if there is none. Reads only its end."""
    try:
        with RowFiles(path) as files:
            last = _last_frames_in(files.read(max(files.start, files.end - _TAIL_NBYTES)))
            if last is None and files.parts:  # a part was closed a moment ago
                last = _last_frames_in(files.parts[-1].read())
            return last
    except (OSError, CorruptFileError):
        return None


def _last_frames_in(data: bytes) -> int | None:
    found = _FRAMES.findall(data[: data.rfind(b"\n") + 1][-_TAIL_NBYTES:])
    return int(found[-1]) if found else None


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a metrics file; a torn tail is skipped, damage before it is an error."""
    return list(stored_rows(path))


def stored_rows(path: Path) -> StoredRows:
    """Return the rows of a metrics file, undecoded, so that they take no more memory than the file."""
    data, nbytes, lost = _all_bytes(path)
    starts, ends = array("q"), array("q")

    def keep(row: Row, start: int, end: int) -> None:
        starts.append(start)
        ends.append(end)

    if lost:
        raise CorruptFileError(f"{next(iter(lost.values()))} is damaged or gone; put it back from a copy")
    damaged, _ = _scan(data, keep)
    if damaged:
        lines = ", ".join(map(str, damaged[:5]))
        raise CorruptFileError(f"{path}: line {lines} is damaged; delete it to read the rest")
    if missing := max(0, _recorded_bytes(path.parent) - nbytes):
        raise CorruptFileError(f"{path} has lost its last {missing} bytes; put it back from a copy")
    return StoredRows(data, starts, ends)


def _recorded_bytes(run_dir: Path) -> int:
    """Return the length of the metrics file that a finished run recorded in its meta data; 0 if none."""
    try:
        recorded = read_meta(run_dir).get("metrics_bytes")
    except (OSError, CorruptFileError):
        return 0
    return recorded if isinstance(recorded, int) else 0
