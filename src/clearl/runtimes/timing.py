"""Where a worker's time goes. Actor and shards have no clock of their own; these wrappers hold one around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from clearl.nets.network import PolicyNetwork, StepInput, StepOutput
from clearl.tasks.suite import Envs, Suite
from clearl.types import EnvStep


class Stopwatch:
    """Seconds by name. What is measured inside something else is taken off that."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started, outside, self._inner = time.perf_counter(), self._inner, 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + spent - self._inner
            self._inner = outside + spent

    def take(self) -> dict[str, float]:
        """What was measured since the last call."""
        seconds, self.seconds = self.seconds, {}
        return seconds


def add_seconds(total: dict[str, float], more: dict[str, float]) -> None:
    """Add what a `Stopwatch` took to a running total."""
    for name, seconds in more.items():
        total[name] = total.get(name, 0.0) + seconds


class TimedNetwork:
    """A network whose `act` is measured as inference; `tick` is called at each."""

    def __init__(self, network: PolicyNetwork, watch: Stopwatch, tick: Callable[[], None]) -> None:
        self.core_size = network.core_size
        self._network, self._watch, self._tick = network, watch, tick

    def act(self, inputs: StepInput, state: Any, *, column: str = "act") -> StepOutput:
        self._tick()
        with self._watch("inference"):
            return self._network.act(inputs, state, column=column)

    def unroll(self, inputs: StepInput, state: Any) -> StepOutput:
        return self._network.unroll(inputs, state)

    def evaluated_column(self) -> str:
        return self._network.evaluated_column()


class TimedSuite:
    """A suite whose environments are measured; `building` is called before some are made."""

    def __init__(self, suite: Suite, watch: Stopwatch, building: Callable[[], None]) -> None:
        self.name, self.tasks, self.spec = suite.name, suite.tasks, suite.spec
        self._suite, self._watch, self._building = suite, watch, building

    def mask(self, task: str) -> np.ndarray:
        return self._suite.mask(task)

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> Envs:
        self._building()
        with self._watch("environment"):
            return _TimedEnvs(self._suite.make(task, num_envs=num_envs, seed=seed, training=training), self._watch)

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        return self._suite.render(task, frame)


class _TimedEnvs:
    def __init__(self, envs: Envs, watch: Stopwatch) -> None:
        self.num_envs = envs.num_envs
        self._envs, self._watch = envs, watch

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

    def close(self) -> None:
        self._envs.close()
