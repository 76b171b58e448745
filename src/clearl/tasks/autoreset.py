"""Convert steps of vector environments that reset in the step after an episode's end."""

from __future__ import annotations

import numpy as np

from clearl.types import EnvStep


class NextStepAutoreset:
    """Remembers which environments have ended an episode: their next step ignores its action and opens an episode."""

    def __init__(self, num_envs: int) -> None:
        self._over = np.zeros(num_envs, bool)

    def reset(self) -> None:
        """Note that all environments have just been reset."""
        self._over = np.zeros_like(self._over)

    def answer(self, frames: np.ndarray, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> EnvStep:
        """Add `valid` and `first` to a vector environment's step; terminated and truncated at once is terminated."""
        first, self._over = self._over, terminated | truncated
        return EnvStep(frames, reward, terminated, truncated & ~terminated, ~first, first)
