"""Environments with one deliberate fault each, registered with Gymnasium as `Broken<Name>-v0` on import."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text, Tuple


class Walk(gymnasium.Env[np.ndarray, Any]):
    """Sound: a random walk on a line of 20 places, from the middle to either end."""

    observation_space = Box(0.0, 1.0, (3,), np.float32)
    action_space = Discrete(2)
    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = 10, 0
        return self.see(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        wind = int(self.np_random.integers(-1, 2))
        self.place = int(np.clip(self.place + (1 if action else -1) + wind, 0, 20))
        return self.see(), float(self.place == 20), self.place in (0, 20), False, {}

    def see(self) -> Any:
        return np.array([self.place / 20, 1 - self.place / 20, 0.5], np.float32)


class RaisesLater(Walk):
    def step(self, action: Any) -> Any:
        if self.time == 3:
            raise RuntimeError("the motor is on fire")
        return super().step(action)


class RaisesInReset(Walk):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        raise ZeroDivisionError("no start")


class RaisesInInit(Walk):
    def __init__(self) -> None:
        raise OSError("no such device")


class NanObservation(Walk):
    def see(self) -> Any:
        return super().see() * (np.nan if self.time == 2 else 1)


class InfReward(Walk):
    def step(self, action: Any) -> Any:
        return (*super().step(action)[:1], float("inf"), False, False, {})


class WrongShape(Walk):
    def see(self) -> Any:
        return super().see()[: 2 if self.time == 2 else 3]


class WrongDtype(Walk):
    observation_space = Box(0, 255, (3,), np.uint8)


class OutOfBounds(Walk):
    def see(self) -> Any:
        return super().see() * 2


class OldReset(Walk):
    def reset(self) -> Any:  # type: ignore[override]  # the fault: Gym's old signature
        self.place, self.time = 10, 0
        return self.see()


class BareObservation(Walk):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0]


class OldStep(Walk):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class IgnoresSeed(Walk):
    def step(self, action: Any) -> Any:
        self.np_random = np.random.default_rng()
        return super().step(action)


class CarriesOver(Walk):
    age = 0

    def see(self) -> Any:
        self.age += 1
        return np.array([self.place / 20, 1 - self.place / 20, self.age / 10_000], np.float32)


class ClockKills(Walk):
    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.time == 25, False, info


class Endless(Walk):
    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class IntFlags(Walk):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, int(terminated), 0, info


class HugeNumbers(Walk):
    observation_space = Box(0.0, 1e6, (3,), np.float32)

    def see(self) -> Any:
        return super().see() * 5000

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return (observation, 50 * reward, *rest)


class NoReward(Walk):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return (observation, 0.0, *rest)


class Spoken(Walk):
    action_space = Text(5)  # type: ignore[assignment]  # the fault


class EmptyActions(Walk):
    action_space = Box(-1, 1, (0,), np.float32)  # type: ignore[assignment]  # the fault


class DictObservation(Walk):
    observation_space = Dict({"a": Box(0, 1, (3,))})  # type: ignore[assignment]  # the fault


class ToldStory(Walk):
    observation_space = Text(5)  # type: ignore[assignment]  # the fault


class Masked(Walk):
    """Sound: allows both actions, and says so."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "action_mask": np.ones(2, np.int8)}


class AllMasked(Masked):
    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return (*rest, {**info, "action_mask": np.zeros(2, np.int8)})


class LongMask(Masked):
    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return (*rest, {**info, "action_mask": np.ones(5, np.int8)})


class RaggedMask(Masked):
    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return (*rest, {**info, "action_mask": [[1], [1, 0]]})


class LateMask(Walk):
    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return (*rest, {**info, "action_mask": np.ones(2, np.int8)})


class StrictMask(Walk):
    """Sound: a state allows one action of two, at first the second, and a step with the other one raises.

    A step brings 1; an episode has 2 to 12 steps, by its seed.
    """

    gain = 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, _ = super().reset(seed=seed, options=options)
        self.length = int(self.np_random.integers(2, 13))
        return observation, {"action_mask": self.allowed()}

    def step(self, action: Any) -> Any:
        assert self.allowed()[int(action)], f"action {action} at time {self.time}"
        observation, *_ = super().step(action)
        return observation, self.gain, self.time == self.length, False, {"action_mask": self.allowed()}

    def allowed(self) -> np.ndarray:
        return np.array([self.time % 2 == 1, self.time % 2 == 0], np.int8)


class StrictParts(StrictMask):
    """Sound: as StrictMask, with further choices and real numbers in one action."""

    action_space = Tuple((Discrete(2), MultiDiscrete([2, 3]), Box(-1.0, 1.0, (2,))))  # type: ignore[assignment]

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        return super().step(action[0])

    def allowed(self) -> Any:
        return np.array([*super().allowed(), 1, 1, 1, 1, 1], np.int8)


class Untold(StrictMask):
    """StrictMask, whose masks only a wrapper tells."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], {})


class Asked(Untold):
    """Sound: as StrictMask, by the convention of sb3-contrib."""

    def action_masks(self) -> np.ndarray:
        return self.allowed()


class ActionMasker(gymnasium.Wrapper[Any, Any, Any, Any]):
    """As the wrapper of sb3-contrib: tells the mask of the environment that it wraps."""

    def action_masks(self) -> np.ndarray:
        return self.env.unwrapped.allowed()  # type: ignore[attr-defined]


class NoInfo(Walk):
    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], None)


class GreyNumbers(Walk):
    """Sound: a table of numbers, which is read as a picture."""

    observation_space = Box(0.0, 1.0, (4, 3), np.float32)

    def see(self) -> Any:
        return np.tile(super().see(), (4, 1))


class ManyChannels(Walk):
    """Sound: nine channels first, read as pictures of 9 x 84 pixels."""

    observation_space = Box(0, 255, (9, 84, 84), np.uint8)

    def see(self) -> Any:
        return np.full((9, 84, 84), 10 * self.place, np.uint8)


class StackedPictures(Walk):
    """Sound: four pictures, read as a vector."""

    observation_space = Box(0, 255, (4, 8, 8, 3), np.uint8)

    def see(self) -> Any:
        return np.full((4, 8, 8, 3), 10 * self.place, np.uint8)


class FourAxes(Walk):
    observation_space = Box(0, 1, (2, 2, 2, 2))


class Truncating(Walk):
    """Sound: truncated after five steps."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self.time == 5, info


class Picture(Walk):
    """Sound: an image, height 4, width 6, three channels last; actions are numbered from 3."""

    observation_space = Box(0, 255, (4, 6, 3), np.uint8)
    action_space = Discrete(2, start=3)

    def step(self, action: Any) -> Any:
        assert action in (3, 4)
        return super().step(action - 3)

    def see(self) -> Any:
        picture = np.zeros((4, 6, 3), np.uint8)
        picture[1, 2, 0] = 10 * self.place
        return picture


for _kind in [kind for kind in list(globals().values()) if isinstance(kind, type) and issubclass(kind, Walk)]:
    _limit = None if _kind in (Endless, ClockKills) else 200
    gymnasium.register(f"Broken{_kind.__name__}-v0", entry_point=_kind, max_episode_steps=_limit)


def make_wrapped_mask(**settings: Any) -> gymnasium.Env[Any, Any]:
    return ActionMasker(Untold(**settings))


gymnasium.register("BrokenWrappedMask-v0", entry_point=make_wrapped_mask, max_episode_steps=200)
