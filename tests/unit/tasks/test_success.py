"""Success of an episode: `success` of any step, `is_success` of the last."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from clearl.config import RunConfig
from clearl.errors import EnvironmentFaultError
from clearl.suites import make_suite
from clearl.tasks.success import Successes
from clearl.tasks.suite import Envs
from clearl.tasks.vectors import BundledEnvs, combine


class Told(gymnasium.Env[np.ndarray, Any]):
    """Episodes of 4 steps that give `key` in the steps `at`, or in every step where `always`."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, key: str = "success", at: int = 2, always: bool = True, dies: bool = False) -> None:
        self.key, self.at, self.always, self.dies = key, at, always, dies

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        reached = self.time == self.at and action == 1
        info = {self.key: reached} if reached or self.always else {}
        over = self.time == 4
        return np.zeros(1, np.float32), 0.0, over and self.dies, over and not self.dies, info


gymnasium.register("Told-v0", entry_point=Told)  # pyright: ignore[reportArgumentType]  # a class is a creator


def play(task: str, steps: int, **settings: Any) -> list[Any]:
    """Return the successes that two environments, of which the second never acts, report in each step."""
    envs = make_suite(f"gym:{task}", (), RunConfig(**settings)).make(task, num_envs=2, seed=0)
    envs.reset()
    told = [envs.step(np.array([1, 0])).success for _ in range(steps)]
    return [None if success is None else success.tolist() for success in told]


NO, ONE = [False, False], [True, False]


def test_success_in_any_step_counts_until_the_episode_ends() -> None:
    assert play("Told-v0", 6) == [NO, ONE, ONE, ONE, NO, NO], "the fifth step opens an episode, the sixth is its first"
    assert play("Told-v0?dies=true", 6) == [NO, ONE, ONE, ONE, NO, ONE], "death resets in the same step"


def test_is_success_is_that_of_the_last_step() -> None:
    assert play("Told-v0?key=is_success", 4) == [NO, ONE, NO, NO]
    assert play("Told-v0?key=is_success&at=4", 4) == [NO, NO, NO, ONE]


def test_nothing_is_told_before_an_info_tells() -> None:
    assert play("Told-v0?always=false", 3) == [None, ONE, ONE]
    assert play("CartPole-v1", 2) == [None, None]


def test_a_success_between_the_frames_of_a_repeated_action_counts() -> None:
    assert play("Told-v0?at=1", 1, action_repeat=3) == [ONE]
    assert play("Told-v0?at=1&key=is_success", 1, action_repeat=3) == [NO]


@pytest.mark.parametrize("value", ["yes", None, (1, 2)])
def test_a_success_that_is_no_truth_value_is_named(value: Any) -> None:
    assert Successes(1).see(0, {"success": value}) == f"info['success'] is {value!r}; give True or False"


def test_the_place_of_such_an_info_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Told.step
    monkeypatch.setattr(Told, "step", lambda env, action: (*step(env, action)[:4], {"success": "yes"}))
    with pytest.raises(EnvironmentFaultError, match="'Told-v0', slot 0, step 2: info.'success'. is 'yes'"):
        play("Told-v0", 2)  # at the first the environment is built anew


@pytest.mark.parametrize("value", [1.0, np.True_, np.float32(1), np.ones(1)])
def test_numbers_of_all_kinds_are_taken(value: Any) -> None:
    successes = Successes(1)
    assert successes.see(0, {"success": value}) is None and successes.so_far() == [True]


def test_environments_take_their_successes_along() -> None:
    suite = make_suite("gym:Told-v0", (), RunConfig())
    one, other = (suite.make("Told-v0", num_envs=2, seed=0) for _ in range(2))
    for envs in (one, other):
        envs.reset()
        envs.step(np.zeros(2, np.int64))
    one.step(np.array([0, 1]))
    other.step(np.array([1, 0]))
    joined = combine([(one, 1), (other, 1), (other, 0)])
    assert _success(joined).tolist() == [True, False, True]
    bundle = BundledEnvs([(one, 0), (other, 0)])
    assert _success(bundle).tolist() == [False, True]


def _success(envs: Envs) -> np.ndarray:
    success = envs.step(np.zeros(envs.num_envs, np.int64)).success
    assert success is not None
    return success
