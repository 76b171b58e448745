"""Reading `metrics.jsonl`: whole rows only, whatever a crash or a bad disk left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from clearl.errors import CorruptFileError
from clearl.records.run_dir import read_meta
from clearl.records.schema import Row, decode

_THIN_EVERY = 20
_TRAIN_MARK = b'"kind":"train"'
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
    """Bytes that the file is shorter than the run's meta data says it was when the run ended."""


def scan_rows(path: Path, *, thin: str | None = None) -> Scan:
    """Read every row that is whole, and say what else there is. No file means no rows.

    Of the rows of kind `thin`, only some and the last are read: enough to see their trend, in a fraction of the time.
    """
    data = path.read_bytes() if path.exists() else b""
    missing = max(0, _recorded_bytes(path.parent) - len(data))
    *lines, tail = data.split(b"\n")
    scan = Scan(torn_tail=bool(tail))
    bad: list[int] = []
    mark = f'"kind":"{thin}"'.encode()
    for number, line in enumerate(lines, 1):
        if number % _THIN_EVERY and number < len(lines) and mark in line:
            continue
        try:
            scan.rows.append(decode(line))
        except CorruptFileError:
            bad.append(number)
        else:
            scan.damaged_lines.extend(bad)
            bad = []
    return Scan(scan.rows, scan.damaged_lines, scan.torn_tail or bool(bad), missing)


@dataclass(frozen=True)
class Position:
    """A place between two rows of a metrics file."""

    nbytes: int = 0
    last_bytes: bytes = b""
    """The last bytes before it: a resumed run writes other rows there than the one before it did."""


@dataclass(frozen=True)
class Followed:
    """The rows after a position, and where to look for the next ones."""

    rows: list[Row]
    position: Position
    rewound: bool = False
    """The run went back to a checkpoint: `rows` are all rows from the start, and those read before are void."""


def follow(path: Path, position: Position | None = None, *, most_train_rows: int | None = None) -> Followed:
    """Return the rows that a growing metrics file got after `position` (None: all). Reads no more than those.

    A torn last row waits for the next call; a damaged one in between is left out. Where there are more training rows
    than `most_train_rows`, evenly spaced ones are taken: a million rows would take half a minute to decode.
    """
    position = position or Position()
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return Followed([], Position(), rewound=position.nbytes > 0)
    with file:
        file.seek(max(0, position.nbytes - len(position.last_bytes)))
        rewound = file.read(len(position.last_bytes)) != position.last_bytes
        if rewound:
            file.seek(0)
        start = file.tell()
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    if not whole:
        return Followed([], Position() if rewound else position, rewound)
    after = Position(start + len(whole), whole[-_LAST_BYTES:])
    return Followed(list(_readable(_thinned(whole.splitlines(), most_train_rows))), after, rewound)


def _thinned(lines: list[bytes], most_train_rows: int | None) -> list[bytes]:
    if most_train_rows is None or len(lines) <= most_train_rows:
        return lines
    trained = [number for number, line in enumerate(lines) if _TRAIN_MARK in line]
    every = -(-len(trained) // most_train_rows)
    dropped = set(trained) - set(trained[every - 1 :: every]) - set(trained[-1:])
    return [line for number, line in enumerate(lines) if number not in dropped]


def _readable(lines: list[bytes]) -> Iterator[Row]:
    for line in lines:
        with suppress(CorruptFileError):
            yield decode(line)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a metrics file; a torn tail is skipped, damage before it is an error."""
    scan = scan_rows(path)
    if scan.damaged_lines:
        lines = ", ".join(map(str, scan.damaged_lines[:5]))
        raise CorruptFileError(f"{path}: line {lines} is damaged; delete it to read the rest")
    if scan.missing_bytes:
        raise CorruptFileError(f"{path} has lost its last {scan.missing_bytes} bytes; put it back from a copy")
    return scan.rows


def _recorded_bytes(run_dir: Path) -> int:
    """Return the length of the metrics file that the meta data of a finished run tells; 0 where it tells none."""
    try:
        recorded = read_meta(run_dir).get("metrics_bytes")
    except (OSError, CorruptFileError):
        return 0
    return recorded if isinstance(recorded, int) else 0
