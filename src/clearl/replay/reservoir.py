"""The paper's reservoir (A.3): each unroll has a random number; a threshold rises, the C above it stay.

The number is a hash of the stream and the sequence number. The whole index is therefore a function of (stream,
capacity, next_sequence) alone: `Reservoir.advance` rebuilds it from nothing, faster than it came about.
"""

from __future__ import annotations

import heapq

import numpy as np

from clearl.errors import ConfigError
from clearl.seeding import unroll_number, unroll_numbers

_LOW_SHARE = 16  # a sixteenth of the numbers above the threshold is kept sorted: one O(C) pass per C/16 evictions
_BLOCK = 1 << 18


def grown(array: np.ndarray, wanted: int, capacity: int) -> np.ndarray:
    """Return `array` with room for `wanted` entries: doubled, within `capacity`, not all allocated at once."""
    if wanted <= len(array):
        return array
    size = min(capacity, max(1024, 2 * wanted))
    return np.concatenate([array, np.zeros(size - len(array), array.dtype)])


class Reservoir:
    """The top C of all sequence numbers so far, by random number.

    Rule of places: the first C unrolls take the positions 0..C-1 in order; after that, one that stays takes the
    position of the one that it displaces, which is always the lowest. Evictions thus go up in number, so the next ones
    need no heap over all C: a sorted run of the lowest (`_low_*`) and a small heap of newcomers below its end
    (`_late`) do.

    A capacity can change (`resize`). A smaller one drops the lowest numbers. A larger one keeps the threshold, below
    which unrolls were dropped before, as a floor: what is held is still every unroll above one number, so a uniform
    sample of all of the past, while the new room fills.
    """

    def __init__(self, stream: int, capacity: int) -> None:
        if capacity < 1:
            raise ConfigError(f"a replay shard must have room for at least one unroll, got {capacity}")
        self.capacity = capacity
        self.next_sequence = 0
        self.held = 0
        self._floor = 0
        self._stream = stream
        self._numbers = np.empty(0, np.uint64)
        self._sequences = np.empty(0, np.int64)
        self._forget_low()

    @property
    def numbers(self) -> np.ndarray:
        """[held] uint64, by position."""
        return self._numbers[: self.held]

    @property
    def sequences(self) -> np.ndarray:
        """[held] int64, by position."""
        return self._sequences[: self.held]

    def at(self, position: int) -> tuple[int, int]:
        """Return the sequence and the number of the unroll at `position`."""
        return self._sequences.item(position), self._numbers.item(position)

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        return sum(a.nbytes for a in (self._numbers, self._sequences, self._low_numbers, self._low_positions))

    @property
    def threshold(self) -> int:
        """The lowest number in a full reservoir; before, the floor (0 at first). An unroll stays if it is above."""
        return self._lowest()[0] if self.held == self.capacity else self._floor

    def place(self) -> tuple[int, int | None]:
        """Return the next unroll's number, and the position that it takes.

        None where it does not stay. Changes nothing.
        """
        number = unroll_number(self._stream, self.next_sequence)
        if self.held < self.capacity:
            return number, self.held if number > self._floor or not self._floor else None
        lowest, position = self._lowest()
        return number, position if number > lowest else None

    def commit(self, number: int, position: int | None) -> None:
        """Count the next unroll, with the result of `place`."""
        if position is not None:
            if position == self.held:
                self._numbers = grown(self._numbers, self.held + 1, self.capacity)
                self._sequences = grown(self._sequences, self.held + 1, self.capacity)
                self.held += 1
            else:
                self._pop_lowest()
                if number < self._low_end:
                    heapq.heappush(self._late, (number, position))
            self._numbers[position] = number
            self._sequences[position] = self.next_sequence
        self.next_sequence += 1

    def advance(self, next_sequence: int) -> None:
        """Count all unrolls up to `next_sequence`: the same as `place` and `commit` for each, many at a time."""
        while self.next_sequence < next_sequence and self.held < self.capacity:
            self._fill(next_sequence)
        while self.next_sequence < next_sequence:
            self._advance_block(min(next_sequence, self.next_sequence + _BLOCK))

    def resize(self, capacity: int) -> None:
        """Continue with another capacity."""
        if capacity < 1:
            raise ConfigError(f"a replay shard must have room for at least one unroll, got {capacity}")
        self._floor = self.threshold
        if capacity < self.held:
            kept = np.sort(np.argpartition(self.numbers, self.held - capacity)[self.held - capacity :])
            self._numbers, self._sequences = self._numbers[kept], self._sequences[kept]
            self.held = capacity
        self.capacity = capacity
        self._forget_low()

    def drop(self, sequences: np.ndarray) -> None:
        """Drop `sequences` [n]. The threshold stays as a floor: what was below it cannot come back.

        So the rest is still every other unroll above one number, and the room fills with new ones above it.
        """
        self._floor = self.threshold
        kept = np.flatnonzero(~np.isin(self.sequences, sequences))
        self._numbers, self._sequences, self.held = self._numbers[kept], self._sequences[kept], len(kept)
        self._forget_low()

    def _fill(self, next_sequence: int) -> None:
        """Take in what stays, in order, until the reservoir is full or `next_sequence` is reached."""
        room = self.capacity - self.held
        stop = min(next_sequence, self.next_sequence + (room if not self._floor else _BLOCK))
        sequences = np.arange(self.next_sequence, stop, dtype=np.int64)
        numbers = unroll_numbers(self._stream, sequences)
        staying = np.flatnonzero(numbers > np.uint64(self._floor)) if self._floor else np.arange(len(sequences))
        if len(staying) > room:
            stop, staying = int(sequences[staying[room]]), staying[:room]
        end = self.held + len(staying)
        self._numbers = grown(self._numbers, end, max(end, len(self._numbers)))
        self._sequences = grown(self._sequences, end, max(end, len(self._sequences)))
        self._sequences[self.held : end] = sequences[staying]
        self._numbers[self.held : end] = numbers[staying]
        self.held, self.next_sequence = end, stop

    def _advance_block(self, stop: int) -> None:
        lowest, _ = self._lowest()
        sequences = np.arange(self.next_sequence, stop, dtype=np.int64)
        numbers = unroll_numbers(self._stream, sequences)
        candidates = np.flatnonzero(numbers > np.uint64(lowest))
        room = len(self._low_numbers) - self._low_next + len(self._late)
        if len(candidates) > room:  # no more evictions in one block than the sorted run can serve
            stop = int(sequences[candidates[room]])
            candidates = candidates[:room]
        staying, positions = self._displace(numbers[candidates])
        # An index given twice keeps its last value: a position may change hands more than once in a block.
        self._sequences[positions] = sequences[candidates[staying]]
        self._numbers[positions] = numbers[candidates[staying]]
        self.next_sequence = stop

    def _displace(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Admit unrolls with `numbers` in this order; return a mask of those that stay, and the positions they take."""
        staying = np.ones(len(numbers), np.bool_)
        pieces: list[np.ndarray] = []
        done = 0
        # Numbers beyond the sorted run surely stay; only the few that fall into it have to be looked at one by one.
        for index in np.flatnonzero(numbers <= np.uint64(self._low_end - 1)).tolist():
            self._pop_many(index - done, pieces)
            done = index + 1
            number = int(numbers[index])
            if number > self._lowest()[0]:
                position = self._pop_lowest()
                heapq.heappush(self._late, (number, position))
                pieces.append(np.array([position]))
            else:
                staying[index] = False
        self._pop_many(len(numbers) - done, pieces)
        return staying, np.concatenate([np.empty(0, np.int64), *pieces])

    def _pop_many(self, count: int, pieces: list[np.ndarray]) -> None:
        """Move the positions of the `count` lowest, in order, from the sorted run and the newcomers to `pieces`."""
        while count > 0:
            start = self._low_next
            ahead = count
            if self._late:
                first_late = np.uint64(self._late[0][0])
                ahead = min(count, int(np.searchsorted(self._low_numbers[start : start + count], first_late)))
            ahead = min(ahead, len(self._low_numbers) - start)
            pieces.append(self._low_positions[start : start + ahead])
            self._low_next += ahead
            count -= ahead
            if count > 0:
                pieces.append(np.array([heapq.heappop(self._late)[1]]))
                count -= 1

    def _lowest(self) -> tuple[int, int]:
        """Return number and position of the lowest unroll of a full reservoir."""
        if self._low_next == len(self._low_numbers) and not self._late:
            self._sort_low()
        if self._low_next < len(self._low_numbers):
            number = self._low_numbers.item(self._low_next)
            if not self._late or number < self._late[0][0]:
                return number, self._low_positions.item(self._low_next)
        return self._late[0]

    def _pop_lowest(self) -> int:
        number, position = self._lowest()
        if self._late and self._late[0][0] == number:
            heapq.heappop(self._late)
        else:
            self._low_next += 1
        return position

    def _sort_low(self) -> None:
        """Sort the lowest sixteenth. The numbers are uniform above the threshold, so a cut by value finds it."""
        lowest = int(self.numbers.min())
        self._low_end = lowest + max(1, ((1 << 64) - lowest) // _LOW_SHARE)
        below = np.flatnonzero(self.numbers <= np.uint64(self._low_end - 1))
        order = np.argsort(self._numbers[below])
        self._low_positions = below[order]
        self._low_numbers = self._numbers[self._low_positions]
        self._low_next = 0

    def _forget_low(self) -> None:
        self._low_numbers = np.empty(0, np.uint64)
        self._low_positions = np.empty(0, np.int64)
        self._low_next = 0
        self._low_end = 0
        self._late: list[tuple[int, int]] = []
