"""Records in append-only segment files, a directory per slot. What is put there outlives the process."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearl.errors import ConfigError, CorruptFileError, StorageError
from clearl.replay.framing import ShardKey
from clearl.replay.labels import table_of
from clearl.replay.reservoir import grown
from clearl.replay.segments import (
    RECORD,
    FilePool,
    append,
    replace_segment,
    replay_error,
    scan_segment,
)
from clearl.storage.files import sync_directory

_FILES = FilePool()
_NAME = re.compile(r"(\d{8,9})\.seg")


@dataclass
class _Segment:
    path: str
    size: int = 0
    held: int = 0
    """Bytes of records that are at a position now; the rest is waste, though a restore may still need some of it."""


class DiskStore:
    """Positions in an index of 12 bytes each, records in segment files.

    A displaced record stays in its file until `reclaim` says that no restore can need it. Space is won by
    replacing the segments with the most waste by what is left of them, joined with a neighbour where that fits.
    """

    def __init__(
        self, directory: Path, *, waste_share: float = 0.5, segment_nbytes: int = 8 << 20, files: FilePool = _FILES
    ) -> None:
        if not 0 < waste_share < 1:
            raise ConfigError(f"replay_waste_share must be above 0 and below 1, got {waste_share}")
        self.directory, self._prefix = directory, f"{directory}/"
        self._waste_share, self._segment_nbytes, self._files = waste_share, segment_nbytes, files
        self._segments: dict[int, _Segment] = {}
        self._unsynced: set[int] = set()
        self._found: np.ndarray | None = None  # [n] of RECORD: what `open` found, until it is taken up or outdated
        self._recovered_next_sequence = 0
        self.quarantined = self._torn_nbytes = self._reclaim_failures = 0
        self._clear_index()

    def open(self, key: ShardKey) -> None:
        self._key = key
        # The directory may have been removed and made again: a file that is still open would then be another one.
        self._files.drop_below(str(self.directory))
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for leftover in self.directory.glob("*.seg.tmp"):
                leftover.unlink()
        except OSError as error:
            raise replay_error(str(self.directory), 0, error) from error
        self._found = self._read_segments()
        self._recovered_next_sequence = int(self._found["sequence"].max(initial=-1)) + 1

    def put(self, position: int, record: bytes) -> None:
        self._reserve(position + 1)
        nbytes = len(record)
        number = self._segment_for(nbytes)
        segment = self._segments[number]
        append(self._files, segment.path, segment.size, record)
        self._vacate(position)
        self._segment[position], self._offset[position], self._length[position] = number, segment.size, nbytes
        self._count += 1
        segment.size += nbytes
        segment.held += nbytes
        self._unsynced.add(number)
        self._found = None

    def get(self, position: int) -> bytes:
        path = self._segments[self._segment.item(position)].path
        place = self._length.item(position), self._offset.item(position)
        try:
            return self._files.read(path, *place)
        except OSError:
            self._files.drop(path)  # a stale handle of a network disk, or a passing error: open it anew, once
        try:
            return self._files.read(path, *place)
        except OSError as error:
            raise CorruptFileError(f"{path} cannot be read: {error.strerror}") from error

    def present(self, count: int) -> np.ndarray:
        return self._length[:count] > 0

    def has(self, position: int) -> bool:
        return position < len(self._length) and self._length.item(position) > 0

    def forget(self, position: int) -> None:
        self._vacate(position)
        self.quarantined += 1

    def recovered_next_sequence(self) -> int:
        return self._recovered_next_sequence

    def restore(self, sequences: np.ndarray, next_sequence: int, dropped: np.ndarray) -> np.ndarray:
        found = self._read_segments() if self._found is None else self._found
        found = self._discard(found, next_sequence, dropped)
        self._found = None
        self._clear_index()
        self._reserve(len(sequences))
        _, positions, places = np.intersect1d(sequences, found["sequence"], assume_unique=True, return_indices=True)
        self._point(positions, found[places])
        self._count = len(positions)
        self._unsynced = set(self._segments)
        labels = table_of({}, len(sequences))
        labels[positions] = found["label"][places]
        return labels

    def reclaim(self, below: int) -> None:
        """Replace the segments with the most waste until `waste_share` is kept; a single segment is left alone."""
        sealed = sorted(self._segments)[:-1]
        for number in sorted(sealed, key=lambda n: self._segments[n].held / max(1, self._segments[n].size)):
            if not self._is_wasteful():
                return
            if number not in self._segments:  # joined with a neighbour meanwhile
                continue
            try:
                self._compact(number, below)
            except StorageError:
                # A full disk cannot be helped from here: the next `put` reports it, with everything intact.
                self._reclaim_failures += 1
                return

    def sync(self) -> None:
        for number in sorted(self._unsynced):
            path = self._path(number)
            try:
                with self._files.use(path) as descriptor:
                    os.fsync(descriptor)
            except OSError as error:
                raise replay_error(path, self._segments[number].size, error) from error
        try:
            sync_directory(self.directory)
        except OSError as error:
            raise replay_error(str(self.directory), 0, error) from error
        self._unsynced.clear()

    def close(self) -> None:
        for number in self._segments:
            self._files.drop(self._path(number))

    @property
    def count(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return sum(segment.size for segment in self._segments.values())

    @property
    def held_nbytes(self) -> int:
        return sum(segment.held for segment in self._segments.values())

    @property
    def index_nbytes(self) -> int:
        return self._segment.nbytes + self._offset.nbytes + self._length.nbytes

    def counters(self) -> dict[str, int]:
        return {
            "torn_bytes": self._torn_nbytes,
            "segments": len(self._segments),
            "waste_bytes": self._waste_nbytes,
            "reclaim_failures": self._reclaim_failures,
        }

    @property
    def _waste_nbytes(self) -> int:
        return self.nbytes - self.held_nbytes

    def _path(self, number: int) -> str:
        return f"{self._prefix}{number:08d}.seg"

    def _read_segments(self) -> np.ndarray:
        """Scan all files; cut off what the last process was writing when it died."""
        try:
            matches = [_NAME.fullmatch(name) for name in os.listdir(self.directory)]
        except OSError as error:
            raise replay_error(str(self.directory), 0, error) from error
        numbers = sorted(int(match[1]) for match in matches if match)
        scans = {n: scan_segment(self._files, self._path(n), n, self._key) for n in numbers}
        self._segments = {n: _Segment(self._path(n), scan.size) for n, scan in scans.items()}
        self.quarantined, self._torn_nbytes = sum(scan.damaged for scan in scans.values()), 0
        for number, scan in scans.items():
            if scan.torn_from is None:
                continue
            if number != numbers[-1]:
                self.quarantined += 1
                continue
            try:
                with self._files.use(self._path(number)) as descriptor:
                    os.ftruncate(descriptor, scan.torn_from)
            except OSError as error:
                raise replay_error(self._path(number), 0, error) from error
            self._torn_nbytes = scan.size - scan.torn_from
            self._segments[number].size = scan.torn_from
        return np.concatenate([np.empty(0, RECORD), *(scan.records for scan in scans.values())])

    def _discard(self, found: np.ndarray, next_sequence: int, dropped: np.ndarray) -> np.ndarray:
        """Erase `dropped`, records from `next_sequence` on, and second copies that a crash has left."""
        order = np.argsort(found["sequence"], kind="stable")
        ordered = found["sequence"][order]
        keep = np.empty(len(found), np.bool_)
        keep[order] = np.append(ordered[1:] != ordered[:-1], True)[: len(found)] & (ordered < next_sequence)
        keep &= ~np.isin(found["sequence"], dropped)
        for number in np.unique(found["segment"][~keep]).tolist():
            mine = found["segment"] == number
            found[mine & keep] = self._rewrite([number], found[mine & keep])
        return found[keep]

    def _rewrite(self, group: list[int], records: np.ndarray) -> np.ndarray:
        """Replace a group of segments by one that holds `records` of theirs; return the records at their new places."""
        target, others = group[0], group[1:]
        # The last segment stays, if only as an empty file: one before it may be shared with a copy of the run, and
        # would be appended to.
        if len(records) or target == max(self._segments):
            sources = [(self._path(n), records[records["segment"] == n]) for n in group]
            replace_segment(self._files, self._path(target), sources)
            self._segments[target].size = int(records["length"].sum(dtype=np.int64))
            self._unsynced.add(target)
        else:
            others = group
        for number in others:
            self._files.drop(self._path(number))
            try:
                os.unlink(self._path(number))
            except OSError as error:
                raise replay_error(self._path(number), 0, error) from error
            del self._segments[number]
            self._unsynced.discard(number)
        moved = records.copy()
        moved["segment"] = target
        moved["offset"] = np.cumsum(records["length"], dtype=np.int64) - records["length"]
        return moved

    def _is_wasteful(self) -> bool:
        return self.nbytes > self._segment_nbytes and self._waste_nbytes > self._waste_share * self.nbytes

    def _compact(self, number: int, below: int) -> None:
        """Drop records of a segment that no restore can need; join it with the next one if both then fit into one."""
        sealed = sorted(self._segments)[:-1]
        following = next((n for n in sealed if n > number), None)
        group = [number]
        if following is not None:
            together = self._segments[number].held + self._segments[following].size
            group += [following] if together <= self._segment_nbytes else []
        scans = [scan_segment(self._files, self._path(n), n, self._key) for n in group]
        records = np.concatenate([scan.records for scan in scans])
        kept = records[records["number"] >= np.uint64(below)]
        if int(kept["length"].sum(dtype=np.int64)) == sum(self._segments[n].size for n in group):
            return
        positions = np.flatnonzero(np.isin(self._segment, group) & (self._length > 0))
        old = _location(kept["segment"], kept["offset"])  # ascending, as the files were read
        wanted = _location(self._segment[positions], self._offset[positions])
        moved = self._rewrite(group, kept)
        for n in group:
            if n in self._segments:
                self._segments[n].held = 0
        index = np.searchsorted(old, wanted)
        there = np.isin(wanted, old)
        self._length[positions[~there]] = 0  # went bad on the disk since it was written
        self._count -= int((~there).sum())
        self.quarantined += int((~there).sum())
        self._point(positions[there], moved[index[there]])

    def _point(self, positions: np.ndarray, records: np.ndarray) -> None:
        """Let `positions` [n] point at `records` [n]."""
        self._segment[positions] = records["segment"]
        self._offset[positions] = records["offset"]
        self._length[positions] = records["length"]
        numbers, inverse = np.unique(records["segment"], return_inverse=True)
        held = np.bincount(inverse, weights=records["length"], minlength=len(numbers))
        for number, nbytes in zip(numbers.tolist(), held.tolist(), strict=True):
            self._segments[number].held += int(nbytes)

    def _segment_for(self, nbytes: int) -> int:
        """Return the segment to append to; a new one where the last has no room."""
        last = max(self._segments, default=-1)
        size = self._segments[last].size if last >= 0 else self._segment_nbytes + 1
        if size == 0 or size + nbytes <= self._segment_nbytes:
            return last
        path = self._path(last + 1)
        try:
            with self._files.use(path, create=True):
                self._segments[last + 1] = _Segment(path)
        except OSError as error:
            raise replay_error(path, nbytes, error) from error
        return last + 1

    def _reserve(self, wanted: int) -> None:
        if wanted > len(self._length):
            self._segment, self._offset, self._length = (
                grown(array, wanted, self._key.capacity) for array in (self._segment, self._offset, self._length)
            )

    def _vacate(self, position: int) -> None:
        length = self._length.item(position)
        if length:
            self._segments[self._segment.item(position)].held -= length
            self._length[position] = 0
            self._count -= 1

    def _clear_index(self) -> None:
        self._segment, self._offset, self._length = (np.empty(0, np.uint32) for _ in range(3))
        self._count = 0
        for segment in self._segments.values():
            segment.held = 0


def _location(segment: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return (segment.astype(np.uint64) << np.uint64(32)) | offset.astype(np.uint64)
