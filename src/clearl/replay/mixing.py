"""Choose the unrolls of each (new, replay) pair that the learner takes: the share of replay is exact over time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from clearl.errors import ConfigError
from clearl.seeding import derive, unroll_number, unroll_numbers

LEAST_RATIO, MOST_RATIO = 0.25, 4.0


@dataclass(frozen=True)
class Picks:
    """The unrolls that the learner takes of n pairs."""

    new: np.ndarray  # [n] bool: the new unroll
    replayed: np.ndarray  # [n] int64: how many of the replayed ones


@dataclass(frozen=True)
class Part:
    """The pairs that go into one batch."""

    indices: np.ndarray  # int64: which of the n pairs
    room: int
    """Replayed unrolls that the batch still takes on top of the new ones."""


class Mixer(ABC):
    """Picks by a hash of a counter, so that its only state is four counters."""

    draws: int
    """Replayed unrolls that every slot has to offer with each new one."""

    def __init__(self, seed: int) -> None:
        self._stream = derive(seed, "mixing")
        self._batches = 0
        self._pairs = 0
        self._replayed = 0
        self._excused = 0  # picks that were due when too few slots had anything to replay; never made up for later

    @abstractmethod
    def choose(self, has_replay: np.ndarray, parts: Sequence[Part]) -> Picks:
        """Choose what to take of n pairs, divided into `parts`; no replay where `has_replay` [n] is false."""

    @abstractmethod
    def most_on_top(self, batch_unrolls: int) -> int:
        """Return the replayed unrolls that a batch may have beyond `batch_unrolls`."""

    def state(self) -> dict[str, int]:
        """Return the state from which the same picks follow."""
        return {
            "batches": self._batches,
            "pairs": self._pairs,
            "replayed": self._replayed,
            "excused": self._excused,
        }

    def restore(self, state: Mapping[str, int]) -> None:
        """Restore `state`."""
        self._batches = int(state["batches"])
        self._pairs = int(state["pairs"])
        self._replayed = int(state["replayed"])
        self._excused = int(state["excused"])

    def _due(self, share: Fraction, pairs: int) -> int:
        """Return the replayed unrolls that `share` asks for after `pairs` more."""
        self._pairs += pairs
        return int(share * self._pairs) - self._replayed - self._excused

    def _shuffled(self, slots: np.ndarray) -> np.ndarray:
        """Shuffle `slots` in the random order of this call."""
        order = np.argsort(unroll_numbers(unroll_number(self._stream, self._batches), slots))
        self._batches += 1
        return slots[order]


class EitherMixer(Mixer):
    """The paper's rule: one unroll of each pair, the replayed one for `fraction` of all pairs."""

    draws = 1

    def __init__(self, fraction: float, seed: int) -> None:
        if not 0 <= fraction <= 1:
            raise ConfigError(f"replay_fraction must be from 0 to 1, got {fraction}")
        super().__init__(seed)
        self.fraction = _exact(fraction)

    def choose(self, has_replay: np.ndarray, parts: Sequence[Part]) -> Picks:
        """Choose among all n pairs alike, whichever batches they go into."""
        due = self._due(self.fraction, len(has_replay))
        able = self._shuffled(np.flatnonzero(has_replay))
        count = min(due, len(able))
        chosen = np.zeros(len(has_replay), np.bool_)
        chosen[able[:count]] = True
        self._replayed += count
        self._excused += due - count
        return Picks(~chosen, chosen.astype(np.int64))

    def most_on_top(self, batch_unrolls: int) -> int:
        return 0


class BothMixer(Mixer):
    """The new unroll of every pair, and `ratio` replayed ones for each on top."""

    def __init__(self, ratio: float, seed: int) -> None:
        if not LEAST_RATIO <= ratio <= MOST_RATIO:
            raise ConfigError(f"replay_ratio must be from {LEAST_RATIO:g} to {MOST_RATIO:g}, got {ratio}")
        super().__init__(seed)
        self.ratio = _exact(ratio)
        self.draws = ceil(self.ratio)

    def choose(self, has_replay: np.ndarray, parts: Sequence[Part]) -> Picks:
        """Choose part by part, so that every batch has `ratio` times its new unrolls, rounded up or down."""
        replayed = np.zeros(len(has_replay), np.int64)
        for part in parts:
            due = self._due(self.ratio, len(part.indices))
            able = self._shuffled(part.indices[has_replay[part.indices]])
            possible = self.draws * len(able)
            count = min(due, possible, part.room)
            for_each, left = divmod(count, max(1, len(able)))
            replayed[able] = for_each
            replayed[able[:left]] += 1
            self._replayed += count
            self._excused += max(0, due - possible)
        return Picks(np.ones(len(has_replay), np.bool_), replayed)

    def most_on_top(self, batch_unrolls: int) -> int:
        return ceil(self.ratio * batch_unrolls)


def _exact(share: float) -> Fraction:
    """Return a ratio of whole numbers, so that no rounding error adds up over a long run."""
    return Fraction(share).limit_denominator(1_000_000)
