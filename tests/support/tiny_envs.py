"""Sixty environments that cost nothing, `Tiny0-v0` to `Tiny59-v0`; an episode has four steps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Tiny(gymnasium.Env[np.ndarray, Any]):
    """The right action brings 1; which one it is depends on the number of the environment."""

    observation_space = Box(0.0, 1.0, (2,), np.float32)
    action_space = Discrete(2)
    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, number: int) -> None:
        self.number, self.time = number, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self.time = 0
        return self.see(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.see(), float(action == self.number % 2), self.time == 4, False, {}

    def see(self) -> np.ndarray:
        return np.array([self.number / 60, self.time / 4], np.float32)


for number in range(60):
    gymnasium.register(f"Tiny{number}-v0", entry_point=f"{__name__}:Tiny", kwargs={"number": number})
