"""Which unroll of each (new, replay) pair the learner takes: the share of replay is exact over time."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from clearl.errors import ConfigError
from clearl.seeding import derive, unroll_number, unroll_numbers


class Mixer:
    """Picks replay for `fraction` of all pairs, by a hash of the batch's number; its only state is four counters."""

    def __init__(self, fraction: float, seed: int) -> None:
        if not 0 <= fraction <= 1:
            raise ConfigError(f"replay_fraction must be from 0 to 1, got {fraction}")
        # A ratio of whole numbers, so that no rounding error adds up over a long run.
        self.fraction = Fraction(fraction).limit_denominator(1_000_000)
        self._stream = derive(seed, "mixing")
        self._batches = 0
        self._pairs = 0
        self._replayed = 0
        self._excused = 0  # picks that were due when too few slots had anything to replay; never made up for later

    def choose(self, has_replay: np.ndarray) -> np.ndarray:
        """[B] bool, true where the pair gives its replay unroll; never where `has_replay` [B] is false."""
        self._pairs += len(has_replay)
        due = int(self.fraction * self._pairs) - self._replayed - self._excused
        able = np.flatnonzero(has_replay)
        count = min(due, len(able))
        order = np.argsort(unroll_numbers(unroll_number(self._stream, self._batches), able))
        chosen = np.zeros(len(has_replay), np.bool_)
        chosen[able[order[:count]]] = True
        self._batches += 1
        self._replayed += count
        self._excused += due - count
        return chosen

    def state(self) -> dict[str, int]:
        """All that is needed to go on with the same picks."""
        return {
            "batches": self._batches,
            "pairs": self._pairs,
            "replayed": self._replayed,
            "excused": self._excused,
        }

    def restore(self, state: Mapping[str, int]) -> None:
        """Take up `state` again."""
        self._batches = int(state["batches"])
        self._pairs = int(state["pairs"])
        self._replayed = int(state["replayed"])
        self._excused = int(state["excused"])
