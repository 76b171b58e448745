"""Reading `metrics.jsonl`: whole rows only, whatever a crash or a bad disk left behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from clearl.errors import CorruptFileError
from clearl.records.schema import Row, decode


@dataclass(frozen=True)
class Scan:
    """All that a metrics file holds."""

    rows: list[Row] = field(default_factory=list)
    damaged_lines: list[int] = field(default_factory=list)
    """Numbers (from 1) of lines before the last whole one that cannot be read."""
    torn_tail: bool = False
    """Whether the file ends in the beginning of a row."""


def scan_rows(path: Path) -> Scan:
    """Read every row that is whole, and say what else there is. No file means no rows."""
    if not path.exists():
        return Scan()
    *lines, tail = path.read_bytes().split(b"\n")
    scan = Scan(torn_tail=bool(tail))
    bad: list[int] = []
    for number, line in enumerate(lines, 1):
        try:
            scan.rows.append(decode(line))
        except CorruptFileError:
            bad.append(number)
        else:
            scan.damaged_lines.extend(bad)
            bad = []
    return Scan(scan.rows, scan.damaged_lines, scan.torn_tail or bool(bad))


def read_rows(path: Path) -> list[Row]:
    """The rows of a metrics file; a torn tail is skipped, damage before it is an error."""
    scan = scan_rows(path)
    if scan.damaged_lines:
        lines = ", ".join(map(str, scan.damaged_lines[:5]))
        raise CorruptFileError(f"{path}: line {lines} is damaged; delete it to read the rest")
    return scan.rows
