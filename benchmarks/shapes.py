"""Pairs of environments with the same numbers: `...Parts-v0` shows them as a Dict, `...Whole-v0` as one Box.

`Parts-v0` and `Whole-v0` cost nearly nothing, so that everything that is done with an observation counts.
`RobotParts-v0` and `RobotWhole-v0` are MuJoCo's HalfCheetah with a goal: the step of a real simulator.
Both of a pair make the same views of one array, and differ only in what they return: what an environment itself pays
for a Dict is left out.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

SIZES = {"joints": 16, "speeds": 16, "goal": 4}
ROBOT_SIZES = {"joints": 8, "speeds": 9, "goal": 4}
_STEPS = 200


class Shown:
    """Shows numbers as a Dict of parts, or as one Box."""

    def __init__(self, sizes: dict[str, int], parts: bool) -> None:
        ends = np.cumsum(list(sizes.values())).tolist()
        self._places = [(name, slice(end - size, end)) for (name, size), end in zip(sizes.items(), ends, strict=True)]
        self._parts = parts
        self.count = ends[-1]
        boxes: dict[str, Any] = {name: Box(-np.inf, np.inf, (size,), np.float32) for name, size in sizes.items()}
        self.space: Any = Dict(boxes) if parts else Box(-np.inf, np.inf, (self.count,), np.float32)

    def show(self, numbers: np.ndarray) -> Any:
        views = {name: numbers[place] for name, place in self._places}
        return views if self._parts else numbers


class Walk(gymnasium.Env[Any, Any]):
    """All numbers walk at random; nothing depends on the action."""

    action_space = Discrete(4)

    def __init__(self, parts: bool) -> None:
        self._shown = Shown(SIZES, parts)
        self.observation_space = self._shown.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._numbers, self._time = np.zeros(self._shown.count, np.float32), 0
        return self._shown.show(self._numbers), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time += 1
        self._numbers = 0.9 * self._numbers + self.np_random.standard_normal(self._shown.count, np.float32)
        return self._shown.show(self._numbers), float(self._numbers[0]), False, self._time == _STEPS, {}


class Robot(gymnasium.Env[Any, Any]):
    """HalfCheetah, and a goal that is constant."""

    def __init__(self, parts: bool) -> None:
        self._shown = Shown(ROBOT_SIZES, parts)
        self.observation_space = self._shown.space
        self._robot = gymnasium.make("HalfCheetah-v5", disable_env_checker=True)
        self.action_space = self._robot.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._see(self._robot.reset(seed=seed)[0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        numbers, reward, terminated, truncated, info = self._robot.step(action)
        return self._see(numbers), float(reward), terminated, truncated, info

    def _see(self, numbers: np.ndarray) -> Any:
        seen = np.ones(self._shown.count, np.float32)
        seen[: len(numbers)] = numbers
        return self._shown.show(seen)

    def close(self) -> None:
        self._robot.close()


for _name, _class in (("", Walk), ("Robot", Robot)):
    for _parts in (True, False):
        _id = f"{_name}{'Parts' if _parts else 'Whole'}-v0"
        gymnasium.register(_id, f"{__name__}:{_class.__name__}", kwargs={"parts": _parts})
