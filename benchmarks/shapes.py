"""Two environments with the same numbers: `Parts-v0` shows them as a Dict of three parts, `Whole-v0` as one Box."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

SIZES = {"joints": 16, "speeds": 16, "goal": 4}
_STEPS = 200


class Shown(gymnasium.Env[Any, Any]):
    """All numbers walk at random; nothing depends on the action."""

    action_space = Discrete(4)

    def __init__(self, parts: bool) -> None:
        self._parts = parts
        spaces: dict[str, Any] = {name: Box(-np.inf, np.inf, (size,), np.float32) for name, size in SIZES.items()}
        whole = Box(-np.inf, np.inf, (sum(SIZES.values()),), np.float32)
        self.observation_space = Dict(spaces) if parts else whole
        self._ends = np.cumsum(list(SIZES.values()))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._numbers, self._time = np.zeros(self._ends[-1], np.float32), 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time += 1
        self._numbers = 0.9 * self._numbers + self.np_random.standard_normal(self._ends[-1], np.float32)
        return self._see(), float(self._numbers[0]), False, self._time == _STEPS, {}

    def _see(self) -> Any:
        if not self._parts:
            return self._numbers
        return dict(zip(SIZES, np.split(self._numbers, self._ends[:-1]), strict=True))


gymnasium.register("Parts-v0", f"{__name__}:Shown", kwargs={"parts": True})
gymnasium.register("Whole-v0", f"{__name__}:Shown", kwargs={"parts": False})
