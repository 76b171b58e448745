"""The success of an episode, as its infos report it.

Two conventions are common. `success` (Meta-World, Continual World): an episode succeeds if any of its steps reports it.
`is_success` (Gymnasium-Robotics, Stable-Baselines3): its last info decides. If an info has both, `success` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

ANY_STEP, LAST_STEP = "success", "is_success"


class Successes:
    """The successes of n running episodes."""

    def __init__(self, count: int) -> None:
        self._reached = np.zeros(count, bool)
        self._told = False

    def begin(self, places: Any) -> None:
        """Begin new episodes at these places."""
        self._reached[places] = False

    def see(self, place: int, info: Mapping[str, Any]) -> str | None:
        """Take in the info of a step; return what is wrong with it, or None."""
        try:
            key = ANY_STEP if ANY_STEP in info else LAST_STEP
            if key not in info:
                return None
        except TypeError:  # None, most often
            return f"info is {info!r:.80}; return a dict"
        try:
            reached = float(np.asarray(info[key]).item()) > 0
        except (TypeError, ValueError):
            return f"info[{key!r}] is {info[key]!r:.80}; give True or False"
        self._told = True
        self._reached[place] = reached or (key == ANY_STEP and self._reached[place])
        return None

    def so_far(self) -> np.ndarray | None:
        """Return [n] bool: which episodes have succeeded; None while no info has reported success or failure."""
        return self._reached.copy() if self._told else None

    @staticmethod
    def combined(seats: list[tuple[Successes, int]]) -> Successes:
        """Combine episodes of other objects, in a new order."""
        made = Successes(len(seats))
        made._reached[:] = [source._reached[place] for source, place in seats]
        made._told = any(source._told for source, _ in seats)
        return made
