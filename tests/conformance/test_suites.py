"""What every suite must do, tested for all that are registered: a new one is tested the day it is registered."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from clearl.config import RunConfig
from clearl.seeding import generator
from clearl.suites import SUITES, make_suite
from clearl.tasks.suite import Envs, Suite
from clearl.types import EnvStep

STANDINS = Path(__file__).parents[1] / "support" / "standins"
STEPS = 40
NUM_ENVS = 2
# Tasks whose episodes end soon, for suites where those are not the default ones.
SHORT = {
    "gym": ("CartPole-v1", "Acrobot-v1"),
    "atari": ("breakout", "pong"),
    "minigrid": ("MiniGrid-LavaGapS5-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0"),
    "vizdoom": ("defend_the_center", "deadly_corridor"),
}
STEPS_TO_AN_END = {"atari": 260, "minigrid": 120, "vizdoom": 160}


@pytest.fixture(params=list(SUITES))
def suite(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Suite]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(STANDINS))
    yield make_suite(request.param, SHORT.get(request.param, ()), RunConfig())
    sys.modules.pop("deepmind_lab", None)
    assert list(tmp_path.iterdir()) == [], "a suite leaves nothing in the working directory"


def random_actions(suite: Suite, task: str, steps: int, seed: int = 0) -> np.ndarray:
    allowed = np.flatnonzero(suite.mask(task))
    return generator(seed, "actions").choice(allowed, (steps, NUM_ENVS))


def play(envs: Envs, actions: np.ndarray) -> list[EnvStep]:
    return [envs.step(action) for action in actions]


def same(one: list[EnvStep], other: list[EnvStep]) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one, other, strict=True)
        for name in ("frames", "reward", "terminated", "truncated", "valid", "first")
    )


def test_the_spec_and_the_masks_describe_the_tasks(suite: Suite) -> None:
    maker = SUITES.get(suite.name)
    assert set(maker.default_tasks) <= set(maker.known_tasks)
    assert suite.spec.observation.frame_dtype in ("uint8", "bool", "float32")
    assert len(suite.spec.observation.frame_shape) in (1, 3)
    for task in suite.tasks:
        mask = suite.mask(task)
        assert mask.shape == (suite.spec.action.choices[0],)
        assert mask.dtype == bool
        assert mask.sum() >= 2


def test_every_suite_leaves_the_stack_to_the_network(suite: Suite) -> None:
    stacked = make_suite(suite.name, suite.tasks, RunConfig(frame_stack=3))
    assert stacked.spec == replace(suite.spec, stack=3)


def test_the_seed_decides_everything(suite: Suite) -> None:
    task = suite.tasks[0]
    actions = random_actions(suite, task, STEPS)
    one, two = (suite.make(task, num_envs=NUM_ENVS, seed=seed) for seed in (1, 2))
    start, other_start = one.reset(), two.reset()
    played, other = play(one, actions), play(two, actions)
    assert not np.array_equal(start, other_start) or not same(played, other), "two seeds play alike"
    two.reset()
    np.testing.assert_array_equal(two.reset(seed=3), one.reset(seed=3))
    assert same(play(one, actions), play(two, actions)), "reset(seed) depends on what was played before"
    fresh = suite.make(task, num_envs=NUM_ENVS, seed=1)
    np.testing.assert_array_equal(fresh.reset(), start)
    assert same(play(fresh, actions), played)
    for envs in (one, two, fresh):
        envs.close()


@pytest.mark.parametrize("training", [True, False])
def test_steps_keep_the_contract(suite: Suite, training: bool) -> None:
    task, spec = suite.tasks[0], suite.spec
    steps = STEPS_TO_AN_END.get(suite.name, STEPS)
    envs = suite.make(task, num_envs=NUM_ENVS, seed=0, training=training)
    assert envs.num_envs == NUM_ENVS
    frames = envs.reset()
    assert frames.shape == (NUM_ENVS, *spec.observation.frame_shape)
    assert frames.dtype == spec.observation.frame_dtype
    waiting, ends, kept = np.zeros(NUM_ENVS, bool), 0, frames.copy()
    for action in random_actions(suite, task, steps):
        answer = envs.step(action)
        assert answer.frames.shape == (NUM_ENVS, *spec.observation.frame_shape)
        assert answer.frames.dtype == spec.observation.frame_dtype
        assert answer.reward.dtype == np.float32
        for name in ("reward", "terminated", "truncated", "valid", "first"):
            assert getattr(answer, name).shape == (NUM_ENVS,), name
        for name in ("terminated", "truncated", "valid", "first"):
            assert getattr(answer, name).dtype == bool, name
        np.testing.assert_array_equal(answer.valid, ~waiting)
        np.testing.assert_array_equal(answer.first, waiting | (answer.terminated & answer.first))
        assert not (answer.terminated & answer.truncated).any()
        assert not (waiting & (answer.terminated | answer.truncated | (answer.reward != 0))).any()
        waiting = (answer.terminated | answer.truncated) & ~answer.first
        ends += int((answer.terminated | answer.truncated).sum())
    assert ends > 0, "no episode ended, so that this test has seen nothing"
    np.testing.assert_array_equal(frames, kept, "frames belong to the caller and are not written to again")
    envs.close()


def test_a_saved_state_goes_on_bit_for_bit_where_it_can_be_had(suite: Suite) -> None:
    task = suite.tasks[0]
    envs = suite.make(task, num_envs=NUM_ENVS, seed=0)
    envs.reset()
    played = play(envs, random_actions(suite, task, STEPS))
    state = envs.get_state()
    if state is None:
        with pytest.raises(NotImplementedError):
            envs.set_state({})
        envs.close()
        return
    json.dumps({key: value for key, value in state.items() if not isinstance(value, np.ndarray)})
    actions = random_actions(suite, task, STEPS, seed=1)
    expected = play(envs, actions)
    other = suite.make(task, num_envs=NUM_ENVS, seed=9)
    np.testing.assert_array_equal(other.set_state(state), played[-1].frames)
    assert same(play(other, actions), expected)
    other.close()
    envs.close()


def test_every_frame_can_be_drawn(suite: Suite) -> None:
    for task in suite.tasks[:2]:
        envs = suite.make(task, num_envs=1, seed=0)
        picture = suite.render(task, envs.reset()[0])
        envs.close()
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        assert picture.dtype == np.uint8
        assert picture.any()


def test_nothing_runs_on_after_close(suite: Suite) -> None:
    def running() -> set[tuple[int, Any]]:
        return {(p.pid, p.name()) for p in psutil.Process().children(recursive=True)}

    before = running()
    envs = suite.make(suite.tasks[0], num_envs=NUM_ENVS, seed=0)
    envs.reset()
    envs.step(random_actions(suite, suite.tasks[0], 1)[0])
    envs.close()
    assert running() <= before
