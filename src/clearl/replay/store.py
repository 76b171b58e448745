"""Storage of records. A store knows positions and bytes; the reservoir decides which unroll has which position."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from clearl.replay.disk import DiskStore
from clearl.replay.forecast import StoreKind, choose_store
from clearl.replay.framing import ShardKey, read_header, record_label
from clearl.replay.labels import table_of

__all__ = ["DiskStore", "RamStore", "Store", "choose_store", "open_store"]


class Store(Protocol):
    """Records by position. What `put` has returned from survives the death of this process, if the store can at all."""

    def open(self, key: ShardKey) -> None:
        """Read and check what is there: records of another slot or run count as damaged."""
        ...

    def put(self, position: int, record: bytes) -> None:
        """Keep `record` at `position`, in place of what was there; on failure nothing has changed."""
        ...

    def get(self, position: int) -> bytes:
        """Return the record at `position`, unchecked; `CorruptFileError` if it cannot be read."""
        ...

    def present(self, count: int) -> np.ndarray:
        """[count] bool: which of the first `count` positions have a record."""
        ...

    def has(self, position: int) -> bool:
        """Return whether `position` has a record."""
        ...

    def forget(self, position: int) -> None:
        """Never return the bad record at `position` again."""
        ...

    def recovered_next_sequence(self) -> int:
        """Return one more than the last sequence number that `open` found; 0 if it found none."""
        ...

    def restore(self, sequences: np.ndarray, next_sequence: int, dropped: np.ndarray) -> np.ndarray:
        """Hold exactly `sequences` [held], by position, as far as they exist; return their labels, [held] of `LABEL`.

        Erases all from `next_sequence` on, and `dropped` [n].
        """
        ...

    def reclaim(self, below: int) -> None:
        """Free the space of records with a number under `below`, which will never be needed again."""
        ...

    def sync(self) -> None:
        """Return when everything put so far would survive a loss of power, if the store can at all."""
        ...

    def close(self) -> None: ...

    @property
    def count(self) -> int:
        """The number of positions that have a record."""
        ...

    @property
    def quarantined(self) -> int:
        """The number of damaged records found so far."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of RAM or disk that the store takes."""
        ...

    @property
    def held_nbytes(self) -> int:
        """Bytes of the records that are at a position now: without waste."""
        ...

    @property
    def index_nbytes(self) -> int:
        """Bytes of RAM that the store needs to find the records."""
        ...

    def counters(self) -> dict[str, int]:
        """Return whatever else this kind of store counts."""
        ...


class RamStore:
    """Records in a list. They are lost with the process: after `restore` in another one, the positions are empty."""

    def __init__(self) -> None:
        self._records: list[bytes | None] = []
        self._count = 0
        self._nbytes = 0
        self.quarantined = 0

    def open(self, key: ShardKey) -> None:
        """Do nothing: no record outlives a process here."""

    def put(self, position: int, record: bytes) -> None:
        while position >= len(self._records):
            self._records.append(None)
        self._vacate(position)
        self._records[position] = record
        self._count += 1
        self._nbytes += len(record)

    def get(self, position: int) -> bytes:
        record = self._records[position]
        assert record is not None, "the shard asks only for positions that are present"
        return record

    def present(self, count: int) -> np.ndarray:
        found = np.zeros(count, np.bool_)
        held = self._records[:count]
        found[: len(held)] = [record is not None for record in held]
        return found

    def has(self, position: int) -> bool:
        return position < len(self._records) and self._records[position] is not None

    def forget(self, position: int) -> None:
        self._vacate(position)
        self.quarantined += 1

    def recovered_next_sequence(self) -> int:
        return 0

    def restore(self, sequences: np.ndarray, next_sequence: int, dropped: np.ndarray) -> np.ndarray:
        headers = ((read_header(record), record) for record in self._records if record is not None)
        known = {header.sequence: (header, record) for header, record in headers if header is not None}
        held = [known.get(sequence) for sequence in sequences.tolist()]
        self._records = [None if each is None else each[1] for each in held]
        left = [len(record) for record in self._records if record is not None]
        self._count, self._nbytes = len(left), sum(left)
        labels = {place: record_label(each[1], each[0]) for place, each in enumerate(held) if each is not None}
        return table_of(labels, len(held))

    def reclaim(self, below: int) -> None:
        """Do nothing: space is reclaimed when a record is replaced."""

    def sync(self) -> None:
        """Do nothing: there is nothing to write."""

    def close(self) -> None:
        self._records.clear()
        self._count = self._nbytes = 0

    @property
    def count(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def held_nbytes(self) -> int:
        return self._nbytes

    @property
    def index_nbytes(self) -> int:
        return 41 * len(self._records)  # a pointer and the head of a bytes object

    def counters(self) -> dict[str, int]:
        return {}

    def _vacate(self, position: int) -> None:
        record = self._records[position]
        if record is not None:
            self._records[position] = None
            self._count -= 1
            self._nbytes -= len(record)


def open_store(kind: StoreKind, directory: Path, *, waste_share: float = 0.5) -> Store:
    """Return an empty RAM store, or the disk store in `directory` with whatever it holds."""
    return RamStore() if kind == "ram" else DiskStore(directory, waste_share=waste_share)
