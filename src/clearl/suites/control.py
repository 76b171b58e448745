"""Continuous control in minutes: Pendulum under control schemes (`pendulum@1`) and with parameters (`pendulum?g=5`)."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from clearl.config import RunConfig
from clearl.errors import ConfigError, EnvironmentFaultError, UnknownNameError
from clearl.seeding import derive
from clearl.spaces import ActionSpec, ObservationSpec, PartSpec, TaskSpec
from clearl.tasks.actions import TaskActions
from clearl.tasks.drawing import draw_rod
from clearl.tasks.observations import TaskObservations
from clearl.tasks.parameters import split_task
from clearl.tasks.suite import Envs
from clearl.types import EnvStep

NAME = "pendulum"
MOST_TORQUE, MOST_SPEED, STEP_S, EPISODE_STEPS = 2.0, 8.0, 0.05, 200
SCHEMES: tuple[tuple[float, tuple[int, ...]], ...] = (
    (1.0, (0, 1, 2)),
    (-1.0, (0, 1, 2)),
    (1.0, (1, 0, 2)),
    (-1.0, (1, 0, 2)),
)
"""By scheme, the factor of the torque, and which of (cos, sin, speed) stands in each place of the observation.

A policy of one scheme fails in every other: reversed torque drives the pendulum away, and with cos and sin exchanged it
balances where it lies on its side. The observation says which scheme it is, so that one policy can know them all.
"""
OBSERVATIONS = TaskObservations(
    {
        "kind": "dict",
        "items": {
            "state": {"kind": "box", "shape": [3], "dtype": "float32"},
            "scheme": {"kind": "one_hot", "counts": [len(SCHEMES)], "starts": [0], "shape": []},
        },
    }
)
ACTIONS = TaskActions({"kind": "box", "low": [-MOST_TORQUE], "high": [MOST_TORQUE], "shape": [1], "dtype": "float32"})
SPEC = TaskSpec(
    ObservationSpec({"state": PartSpec((3,), "float32"), "scheme": PartSpec((len(SCHEMES),), "bool")}),
    ActionSpec(bounded=(True,)),
)


@dataclass(frozen=True)
class PendulumTask:
    """A control scheme, and the parameters of Gymnasium's Pendulum-v1."""

    scheme: int = 0
    g: float = 10.0
    """Gravity, in m/s^2."""
    m: float = 1.0
    """Mass, in kg."""
    l: float = 1.0  # noqa: E741 - the name in Gymnasium, and so in tasks
    """Length, in m."""


PARAMETERS = tuple(field.name for field in fields(PendulumTask) if field.name != "scheme")


def parse_task(name: str) -> PendulumTask:
    """Parse `pendulum`, `pendulum@1`, `pendulum?g=5&m=2` or both."""
    base, given = split_task(name)
    kind, at, scheme = base.partition("@")
    if kind != NAME:
        raise UnknownNameError("task of suite control", name, ControlSuite.known_tasks)
    if at and not (scheme.isdecimal() and 1 <= int(scheme) < len(SCHEMES)):
        raise ConfigError(f"task {name!r}: the scheme after '@' must be a number from 1 to {len(SCHEMES) - 1}")
    task = PendulumTask(int(scheme or 0))
    for key, value in given.items():
        if key not in PARAMETERS:
            raise UnknownNameError(f"parameter of {NAME}", key, PARAMETERS)
        if isinstance(value, bool | str) or not math.isfinite(value) or (key != "g" and value <= 0):
            raise ConfigError(f"task {name!r}: {key} must be a number{'' if key == 'g' else ' above 0'}, got {value!r}")
        task = replace(task, **{key: float(value)})
    return task


class ControlSuite:
    """Pendulum-v1, with a part of the observation that shows the control scheme."""

    name = "control"
    default_tasks: ClassVar[tuple[str, ...]] = (NAME, f"{NAME}@1", f"{NAME}@2")
    known_tasks: ClassVar[tuple[str, ...]] = (NAME, *(f"{NAME}@{scheme}" for scheme in range(1, len(SCHEMES))))
    settings: ClassVar[type | None] = None

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        self.tasks = tuple(tasks)
        self.spec = SPEC.stacked(config.frame_stack or 1)
        self._parsed = {task: parse_task(task) for task in self.tasks}
        self.changes_in_play = config.drift_applied == "at-once"

    def mask(self, task: str) -> np.ndarray:
        return np.ones(SPEC.action.mask_size, bool)

    def actions(self, task: str) -> TaskActions:
        return ACTIONS

    def observations(self, task: str) -> TaskObservations:
        return OBSERVATIONS

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> PendulumEnvs:
        return PendulumEnvs(task, self._parsed[task], num_envs=num_envs, seed=seed)

    def change(self, envs: Envs, task: str) -> PendulumEnvs:
        assert isinstance(envs, PendulumEnvs)
        return envs.changed(task, self._parsed[task])

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        """Draw the pendulum; upright is up."""
        _, order = SCHEMES[self._parsed[task].scheme]
        cos, sin = (float(frame["state"][order.index(place)]) for place in (0, 1))
        return draw_rod(cos, sin)


class PendulumEnvs:
    """n pendulums in one array: the same numbers as n of Gymnasium's, at a tenth of the time."""

    def __init__(self, name: str, task: PendulumTask, *, num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        self._take_on(name, task)
        self._rngs: list[np.random.Generator] = []
        self._angle, self._speed = np.zeros(num_envs), np.zeros(num_envs)
        self._steps = np.zeros(num_envs, np.int64)
        self._seed(seed)

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        if seed is not None:
            self._seed(seed)
        self._restart(np.arange(self.num_envs))
        return self._frames()

    def step(self, actions: np.ndarray) -> EnvStep:
        if not np.isfinite(actions).all():
            slot = int(np.flatnonzero(~np.isfinite(actions[:, 0]))[0])
            problem = f"the policy chose the action {actions[slot].tolist()}; lower learning_rate"
            raise EnvironmentFaultError(self._name, slot, int(self._steps[slot]), problem)
        valid = self._steps < EPISODE_STEPS
        reward = np.where(valid, self._swing(actions), 0.0).astype(np.float32)
        self._restart(np.flatnonzero(~valid))
        truncated = self._steps == EPISODE_STEPS
        return EnvStep(self._frames(), reward, np.zeros_like(valid), truncated, valid, ~valid)

    @staticmethod
    def combined(seats: Sequence[tuple[PendulumEnvs, int]]) -> PendulumEnvs:
        """Combine pendulums of other vectors, each in its present state; see `clearl.tasks.vectors`."""
        made = copy.copy(seats[0][0])
        made.num_envs = len(seats)
        made._rngs = [envs._rngs[index] for envs, index in seats]
        for name in ("_angle", "_speed", "_steps"):
            setattr(made, name, np.array([getattr(envs, name)[index] for envs, index in seats]))
        return made

    def changed(self, name: str, task: PendulumTask) -> PendulumEnvs:
        """Return these pendulums under another task, each in its present state."""
        made = self.combined([(self, index) for index in range(self.num_envs)])
        made._take_on(name, task)
        return made

    def get_state(self) -> dict[str, Any]:
        return {
            "angle": self._angle.copy(),
            "speed": self._speed.copy(),
            "steps": self._steps.copy(),
            "random": [rng.bit_generator.state for rng in self._rngs],
        }

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        if len(state["random"]) != self.num_envs:
            raise ConfigError(f"the state of {len(state['random'])} pendulums does not fit {self.num_envs}")
        for name in ("angle", "speed", "steps"):
            setattr(self, f"_{name}", state[name].copy())
        for rng, numbers in zip(self._rngs, state["random"], strict=True):
            rng.bit_generator.state = numbers
        return self._frames()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _take_on(self, name: str, task: PendulumTask) -> None:
        self._name, self._task = name, task
        self._gain, order = SCHEMES[task.scheme]
        self._order = list(order)

    def _swing(self, actions: np.ndarray) -> np.ndarray:
        """Make one step of Gymnasium's Pendulum-v1, in its order and precision; return the rewards."""
        task = self._task
        torque = (self._gain * MOST_TORQUE * np.tanh(actions[:, 0].astype(np.float64))).astype(np.float32)
        upright = (self._angle + np.pi) % (2 * np.pi) - np.pi
        cost = upright**2 + 0.1 * self._speed**2 + 0.001 * torque**2
        push = 3 * task.g / (2 * task.l) * np.sin(self._angle) + 3.0 / (task.m * task.l**2) * torque
        self._speed = np.clip(self._speed + push * STEP_S, -MOST_SPEED, MOST_SPEED)
        self._angle = self._angle + self._speed * STEP_S
        self._steps = self._steps + 1
        return -cost

    def _seed(self, seed: int) -> None:
        seeds = [derive(seed, index) & 0x7FFFFFFF for index in range(self.num_envs)]
        self._rngs = [np.random.default_rng(each) for each in seeds]

    def _restart(self, places: np.ndarray) -> None:
        for place in places.tolist():
            self._angle[place], self._speed[place] = self._rngs[place].uniform((-np.pi, -1.0), (np.pi, 1.0))
        self._steps[places] = 0

    def _frames(self) -> np.ndarray:
        frames = np.zeros(self.num_envs, SPEC.observation.frame_dtype)
        state = np.stack([np.cos(self._angle), np.sin(self._angle), self._speed], 1)
        frames["state"] = state[:, self._order]
        frames["scheme"][:, self._task.scheme] = True
        return frames
