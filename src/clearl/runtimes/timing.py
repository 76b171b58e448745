"""Seconds by activity: a stopwatch, and a network and a suite whose calls it measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from clearl.errors import EnvironmentFaultError
from clearl.nets.heads import Head
from clearl.nets.network import PolicyNetwork, StepInput, StepOutput
from clearl.tasks.suite import ChangesInPlay, Envs, Suite
from clearl.tasks.vectors import combine, take_faults
from clearl.types import EnvStep


class Stopwatch:
    """Measures seconds by name; time of an inner measurement is subtracted from the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = 0.0

    def __call__(self, name: str) -> AbstractContextManager[None]:
        return _Measurement(self, name)

    def take(self) -> dict[str, float]:
        """Return the seconds measured since the last call."""
        seconds, self.seconds = self.seconds, {}
        return seconds


class _Measurement:
    """One measured block; a class, since a generator's context costs a microsecond more, some times a step."""

    __slots__ = ("_name", "_outside", "_started", "_watch")
    _outside: float
    _started: float

    def __init__(self, watch: Stopwatch, name: str) -> None:
        self._watch, self._name = watch, name

    def __enter__(self) -> None:
        watch = self._watch
        self._outside, watch._inner = watch._inner, 0.0
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        spent = time.perf_counter() - self._started
        watch, name = self._watch, self._name
        watch.seconds[name] = watch.seconds.get(name, 0.0) + spent - watch._inner
        watch._inner = self._outside + spent


def add_seconds(total: dict[str, float], more: dict[str, float]) -> None:
    """Add the seconds of a `Stopwatch` to a running total."""
    for name, seconds in more.items():
        total[name] = total.get(name, 0.0) + seconds


Measure = Callable[[str], AbstractContextManager[None]]
"""Measures a block by name, as a `Stopwatch` does."""


def beating(watch: Stopwatch, beat: Callable[[], None]) -> Measure:
    """Return `watch` with a heartbeat before each block: a slow one must not be taken for a part of the one before."""

    def measure(name: str) -> AbstractContextManager[None]:
        beat()
        return watch(name)

    return measure


class TimedNetwork:
    """A network whose `act` is measured as inference; `tick` is called at each."""

    def __init__(self, network: PolicyNetwork, watch: Stopwatch, tick: Callable[[], None]) -> None:
        self.core_size = network.core_size
        self._network, self._watch, self._tick = network, watch, tick

    @property
    def head(self) -> Head:
        return self._network.head

    def act(self, inputs: StepInput, state: Any, *, column: str = "act") -> StepOutput:
        self._tick()
        with self._watch("inference"):
            return self._network.act(inputs, state, column=column)

    def unroll(self, inputs: StepInput, state: Any) -> StepOutput:
        return self._network.unroll(inputs, state)

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        return self._network.evaluated_columns(in_training=in_training)


class TimedSuite:
    """A suite whose environments are measured; `building` is called before (True) and after (False) some are made."""

    def __init__(self, suite: Suite, watch: Measure, building: Callable[[bool], None]) -> None:
        self.name, self.tasks, self.spec = suite.name, suite.tasks, suite.spec
        self._suite, self._watch, self._building = suite, watch, building
        if isinstance(suite, ChangesInPlay):  # callers look for capabilities here, not in the suite inside
            self.changes_in_play, self.change = suite.changes_in_play, partial(self._change, suite.change)

    def mask(self, task: str) -> np.ndarray:
        return self._suite.mask(task)

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> Envs:
        with self._watch("environment"):
            self._building(True)
            envs = self._suite.make(task, num_envs=num_envs, seed=seed, training=training)
        self._building(False)  # from here on a hang is that of a step
        return _TimedEnvs(envs, self._watch)

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        return self._suite.render(task, frame)

    def _change(self, change: Callable[[Envs, str], Envs], envs: Envs, task: str) -> Envs:
        assert isinstance(envs, _TimedEnvs)
        with self._watch("environment"):
            return _TimedEnvs(change(envs._envs, task), self._watch)


class _TimedEnvs:
    def __init__(self, envs: Envs, watch: Measure) -> None:
        self.num_envs = envs.num_envs
        self._envs, self._watch = envs, watch
        if hasattr(envs, "combined"):
            self.combined = self._combined
        if (allowed_actions := getattr(envs, "allowed_actions", None)) is not None:
            self.allowed_actions = allowed_actions

    def _combined(self, seats: Sequence[tuple[_TimedEnvs, int]]) -> _TimedEnvs:
        return _TimedEnvs(combine([(timed._envs, index) for timed, index in seats]), self._watch)

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        with self._watch("environment"):
            return self._envs.reset(seed=seed)

    def step(self, actions: np.ndarray) -> EnvStep:
        with self._watch("environment"):
            return self._envs.step(actions)

    def get_state(self) -> dict[str, Any] | None:
        return self._envs.get_state()

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        return self._envs.set_state(state)

    def take_faults(self) -> list[EnvironmentFaultError]:
        return take_faults(self._envs)

    def close(self) -> None:
        self._envs.close()
