"""The public checks refuse what is wrong; what is right passes them in tests/conformance."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
import numpy as np
import pytest

from clearl.config import RunConfig
from clearl.suites import SUITES
from clearl.suites.minatar import MinAtarSuite
from clearl.testing import check_env, check_suite


class Deaf(gymnasium.Env):
    """Draws from numpy's global generator, whatever the seed."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self._look(), {}

    def step(self, action):
        return self._look(), 0.0, bool(np.random.default_rng().random() < 0.1), False, {}

    def _look(self) -> np.ndarray:
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)


def test_an_environment_that_cannot_be_repeated_fails_the_check() -> None:
    gymnasium.register("Deaf-v0", lambda **_: Deaf())
    with pytest.raises(AssertionError, match="same seed"):
        check_env("Deaf-v0", steps=300)
    check_env("CartPole-v1", steps=300, warnings=False)


class Seedless(MinAtarSuite):
    """Plays the same whatever the seed."""

    name = "seedless"

    def make(self, task, *, num_envs, seed, training=True):
        return super().make(task, num_envs=num_envs, seed=0, training=training)


def test_a_suite_that_ignores_its_seed_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES._entries, "seedless", Seedless)
    with pytest.raises(AssertionError, match="two seeds play alike"):
        check_suite("seedless", ("space_invaders",))


class SeedlessIfSticky(MinAtarSuite):
    """Plays the same whatever the seed, but only under one setting."""

    name = "seedless"

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        super().__init__(tasks, config)
        self.forgets = config.sticky_action_probability == 0.5

    def make(self, task, *, num_envs, seed, training=True):
        return super().make(task, num_envs=num_envs, seed=0 if self.forgets else seed, training=training)


def test_a_suite_is_checked_under_the_settings_of_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES._entries, "seedless", SeedlessIfSticky)
    check_suite("seedless", ("space_invaders",), sticky_action_probability=0.25)
    with pytest.raises(AssertionError, match="two seeds play alike"):
        check_suite("seedless", ("space_invaders",), sticky_action_probability=0.5)
