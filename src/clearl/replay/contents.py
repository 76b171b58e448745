"""Read the contents of a replay buffer on disk without touching it, while it is written to or at rest."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearl.errors import CorruptFileError
from clearl.replay.framing import ShardKey
from clearl.replay.history import Earlier, reservoir_at
from clearl.replay.segments import RECORD, FilePool, SegmentScan, scan_segment
from clearl.seeding import derive

SLOT_DIRECTORY = re.compile(r"slot-(\d{5,})")
_SEGMENT_FILE = re.compile(r"(\d{8,9})\.seg")
_ATTEMPTS = 5  # a run that trains meanwhile may replace segments under our eyes
_MAX_RECORD_NBYTES = 1 << 31


@dataclass(frozen=True)
class ShardContents:
    """One slot's shard."""

    slot: int
    next_sequence: int
    held: np.ndarray
    """[n] of `RECORD`, by sequence: the unrolls that can be sampled."""
    lost: int
    """Unrolls that it ought to hold and does not."""
    nbytes: int
    """Bytes of its files, waste included."""
    problems: tuple[str, ...]
    """The damaged records, each with its file."""


def shard_directories(replay: Path) -> dict[int, Path]:
    """Return the directory of each slot that has one."""
    matches = {path: SLOT_DIRECTORY.fullmatch(path.name) for path in replay.iterdir()} if replay.is_dir() else {}
    return {int(match[1]): path for path, match in sorted(matches.items()) if match and path.is_dir()}


def read_shard(
    directory: Path, *, slot: int, seed: int, capacity: int, earlier: Sequence[Earlier] = (),
    next_sequence: int | None = None,
) -> ShardContents:  # fmt: skip
    """Read one shard as it was after `next_sequence` unrolls; by default after the last that is there."""
    stream = derive(seed, "reservoir", slot)
    key = ShardKey(slot, stream, capacity, _MAX_RECORD_NBYTES)
    scans, problems = _scans(directory, key)
    found = np.concatenate([np.empty(0, RECORD), *(scan.records for scan in scans.values())])
    # Of second copies, which a crash may leave, the one of the later file counts.
    last = np.unique(found["sequence"][::-1], return_index=True)[1]
    found = found[len(found) - 1 - last]
    if next_sequence is None:
        next_sequence = max([int(found["sequence"].max(initial=-1)) + 1, *(each.until for each in earlier)])
    reservoir, _ = reservoir_at(stream, capacity, earlier, next_sequence)
    held = found[np.isin(found["sequence"], reservoir.sequences)]
    nbytes = sum(scan.size for scan in scans.values())
    return ShardContents(slot, next_sequence, held, reservoir.held - len(held), nbytes, tuple(problems))


def _scans(directory: Path, key: ShardKey) -> tuple[dict[int, SegmentScan], list[str]]:
    """Scan all segments of one moment; what is damaged."""
    for attempt in range(_ATTEMPTS):
        before, scans, problems = _segments(directory), {}, []
        files = FilePool(read_only=True)
        for number, path in before.items():
            try:
                scans[number] = scan_segment(files, str(path), number, key)
            except CorruptFileError as error:
                problems.append(str(error))
            finally:
                files.drop(str(path))
        if attempt == _ATTEMPTS - 1 or before.keys() == _segments(directory).keys():
            break
    for number, scan in scans.items():
        if damaged := scan.damaged + (scan.torn_from is not None and number != max(scans)):
            problems.append(f"{before[number]}: {damaged} damaged {'records' if damaged > 1 else 'record'}")
    return scans, problems


def _segments(directory: Path) -> dict[int, Path]:
    names = os.listdir(directory) if directory.is_dir() else []
    return {int(match[1]): directory / name for name in sorted(names) if (match := _SEGMENT_FILE.fullmatch(name))}
