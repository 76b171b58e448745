"""One slot's replay: the reservoir decides, the codec writes, the store keeps. All that a worker sees of replay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearl.errors import CorruptFileError, StorageError
from clearl.replay.codec import Codec
from clearl.replay.framing import MAX_OVERHEAD_NBYTES, ShardKey, open_record, pack_record
from clearl.replay.history import Earlier, reservoir_at
from clearl.replay.labels import LABEL, UNKNOWN, Label, task_number
from clearl.replay.reservoir import Reservoir, grown
from clearl.replay.store import Store
from clearl.seeding import derive, unroll_number
from clearl.unroll import Payload, Unroll

_DRAWS_BEFORE_SEARCH = 32


class ReplayShard:
    """A uniform sample of all unrolls of one slot, kept whole.

    What it holds and samples follows from (seed, slot, capacity, next_sequence) alone, so a checkpoint needs only
    `next_sequence`, and `restore` does the rest. After the death of a worker, `restore(max(recovered_next_sequence(),
    unrolls acknowledged))` brings back all that `insert` has returned from, if the store outlives the process.
    """

    def __init__(
        self, *, codec: Codec, capacity_unrolls: int, seed: int, slot: int, store: Store,
        earlier: Sequence[Earlier] = (),
    ) -> None:  # fmt: skip
        """`earlier`: the parts of the shard's life that are over; see `clearl.replay.history`."""
        self.slot, self._earlier = slot, tuple(earlier)
        self._stream = derive(seed, "reservoir", slot)
        self._sample_stream = derive(seed, "sample", slot)
        self.codec = codec
        self._reservoir = Reservoir(self._stream, capacity_unrolls)
        self._store = store
        self._draws = 0
        self._tasks, self._frames = np.empty(0, np.uint16), np.empty(0, np.int64)  # of the labels, by position
        self._floor_marks = [(0, 0)]
        store.open(ShardKey(slot, self._stream, capacity_unrolls, MAX_OVERHEAD_NBYTES + self.codec.max_nbytes))
        self._takes_up = store.recovered_next_sequence() > 0

    @property
    def next_sequence(self) -> int:
        """The number of unrolls inserted so far, kept or not; the next one's sequence number."""
        return self._reservoir.next_sequence

    @property
    def held(self) -> int:
        """The number of unrolls that can be sampled."""
        return self._store.count

    @property
    def nbytes(self) -> int:
        """Bytes of RAM or disk that the store takes."""
        return self._store.nbytes

    @property
    def held_nbytes(self) -> int:
        """Bytes of the records that can be sampled: without waste."""
        return self._store.held_nbytes

    @property
    def index_nbytes(self) -> int:
        """Bytes of RAM that the index takes, beside the records."""
        return self._reservoir.nbytes + self._store.index_nbytes + self._tasks.nbytes + self._frames.nbytes

    @property
    def quarantined(self) -> int:
        """The number of damaged records found, by opening the store or by sampling."""
        return self._store.quarantined

    def counters(self) -> dict[str, int]:
        """Return figures for the records of a run."""
        return {
            **self._store.counters(),
            "quarantined": self.quarantined,
            "inserted": self.next_sequence,
            "held": self.held,
            "lost": self._reservoir.held - self.held,
            "bytes": self.nbytes,
            "index_bytes": self.index_nbytes,
        }

    def sequences(self) -> np.ndarray:
        """[held] int64, ascending: the sequence numbers of the unrolls that can be sampled."""
        present = self._store.present(self._reservoir.held)
        return np.sort(self._reservoir.sequences[present])

    def labels(self) -> np.ndarray:
        """[held] of `task` and `frames`: the labels of the unrolls that can be sampled, for people."""
        present = np.flatnonzero(self._store.present(self._reservoir.held))
        table = np.empty(len(present), [(name, LABEL[name]) for name in ("task", "frames")])
        table["task"], table["frames"] = self._tasks[present], self._frames[present]
        return table

    def insert(self, row: Unroll, label: Label = UNKNOWN) -> int:
        """Offer one unroll, its fields without a slot axis; return its sequence number.

        It is written before it counts.
        """
        insert_each([self], row[None], [label])
        return self.next_sequence - 1

    def sample(self) -> Unroll | None:
        """Sample a past unroll, each with the same chance; None while there is none."""
        payload = self.draw()
        return None if payload is None else self.codec.decode(payload)

    def place(self) -> tuple[int, int | None]:
        """Return the next unroll's number, and the position that it takes.

        None where it does not stay. Changes nothing.
        """
        if self._takes_up:
            raise StorageError(
                f"the replay store of slot {self.slot} holds unrolls of an earlier process; "
                "restore(next_sequence) first, or remove its directory"
            )
        return self._reservoir.place()

    def commit(self, number: int, position: int | None, payload: bytes | None, label: Label = UNKNOWN) -> None:
        """Count the next unroll, with the answer that `place` gave; if it stays, `payload` is written first."""
        if position is not None and payload is not None:
            self._store.put(position, pack_record(self.slot, self.next_sequence, number, payload, label))
            if position >= len(self._tasks):
                self._tasks, self._frames = (
                    grown(array, position + 1, self._reservoir.capacity) for array in (self._tasks, self._frames)
                )
            self._tasks[position], self._frames[position] = task_number(label.task), label.frames
        self._reservoir.commit(number, position)
        self._draws = 0

    def draw(self) -> Payload | None:
        """Return a past unroll as it is kept, see `sample`. Damaged ones are put aside on the way."""
        while (position := self._draw()) is not None:
            sequence, number = self._reservoir.at(position)
            try:
                record = self._store.get(position)
                return self.codec.check(open_record(record, slot=self.slot, sequence=sequence, number=number))
            except CorruptFileError:
                self._store.forget(position)
        return None

    def recovered_next_sequence(self) -> int:
        """Return one more than the last sequence number in the store as it was opened; 0 if it held nothing."""
        return self._store.recovered_next_sequence()

    def restore(self, next_sequence: int) -> None:
        """Restore the shard to when `next_sequence` unrolls had been inserted; what came later is discarded."""
        if next_sequence < 0:
            raise CorruptFileError(f"a replay shard cannot go back to sequence {next_sequence}")
        self._reservoir, dropped = reservoir_at(self._stream, self._reservoir.capacity, self._earlier, next_sequence)
        labels = self._store.restore(self._reservoir.sequences, next_sequence, dropped)
        self._tasks, self._frames = labels["task"].copy(), labels["frames"].copy()
        self._draws = 0
        self._floor_marks = [(0, 0), (next_sequence, self._reservoir.threshold)]
        self._takes_up = False

    def set_floor(self, sequence: int) -> None:
        """Promise that `restore` will never be asked for less than `sequence`, so that space can be reclaimed.

        Exact where `sequence` is now or was `next_sequence` at a `sync`; else the last `sync` before it counts.
        """
        self._mark()
        known = [mark for mark in self._floor_marks if mark[0] <= sequence]
        self._floor_marks = self._floor_marks[len(known) - 1 :]
        self._store.reclaim(known[-1][1])

    def sync(self) -> None:
        """Return when all that was inserted would survive a loss of power, if the store can at all."""
        self._store.sync()
        self._mark()

    def close(self) -> None:
        """Close files and release memory; what is on disk stays."""
        self._store.close()

    def _mark(self) -> None:
        """Record the threshold: what is below it now is not needed by a restore to now or later."""
        if self._floor_marks[-1][0] < self.next_sequence:
            self._floor_marks.append((self.next_sequence, self._reservoir.threshold))

    def _draw(self) -> int | None:
        """Return a position that has a record, by the next hash of (seed, slot, next_sequence, draw)."""
        if not self.held:
            return None
        for _ in range(_DRAWS_BEFORE_SEARCH):
            position = self._random_below(self._reservoir.held)
            if self._store.has(position):
                return position
        # Nearly everything is lost (a RAM store after a crash): search once rather than draw for ever.
        positions = np.flatnonzero(self._store.present(self._reservoir.held))
        return int(positions[self._random_below(len(positions))])

    def _random_below(self, bound: int) -> int:
        stream = unroll_number(self._sample_stream, self.next_sequence)
        self._draws += 1
        return unroll_number(stream, self._draws) * bound >> 64


def insert_each(shards: Sequence[ReplayShard], rows: Unroll, labels: Sequence[Label] = ()) -> None:
    """Offer each shard its unroll of `rows`; see `ReplayShard.insert`."""
    if not shards:
        return
    labels = labels or [UNKNOWN] * len(shards)
    places = [shard.place() for shard in shards]
    staying = [index for index, (_, position) in enumerate(places) if position is not None]
    payloads = iter(shards[0].codec.encode_each(rows, staying))
    for shard, (number, position), label in zip(shards, places, labels, strict=True):
        shard.commit(number, position, None if position is None else next(payloads), label)
