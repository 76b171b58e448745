"""Meta-World and Continual World's sequences of it."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from clearl.config import RunConfig, resolve
from clearl.errors import MissingExtraError, UnknownNameError
from clearl.suites import make_suite
from clearl.suites.metaworld import CW10, EPISODE_STEPS, TASKS, ArmEnv

installed = pytest.mark.skipif(importlib.util.find_spec("metaworld") is None, reason="needs the extra metaworld")


@installed
def test_the_tasks_are_those_of_metaworld() -> None:
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    assert {f"{task}-v3" for task in TASKS} == set(ALL_V3_ENVIRONMENTS) and len(TASKS) == len(set(TASKS)) == 50


def test_the_sequences_of_continual_world_have_presets() -> None:
    ten, twenty = (resolve(flags={"preset": name}) for name in ("cw10", "cw20"))
    assert ten.suite == twenty.suite == "metaworld" and ten.tasks == twenty.tasks == CW10
    assert (ten.cycles, twenty.cycles) == (1, 2) and ten.frames_per_visit == twenty.frames_per_visit == 1_000_000


@installed
def test_an_episode_has_200_steps_shows_its_task_and_tells_of_success() -> None:
    suite = make_suite("metaworld", ("push", "window-close"), RunConfig())
    assert suite.spec.action.bounded == (True,) * 4
    envs = suite.make("window-close", num_envs=1, seed=0)
    frames = envs.reset()
    assert frames["state"].shape == (1, 39) and frames["task"][0].argmax() == TASKS.index("window-close")
    ends = []
    for step in range(1, EPISODE_STEPS + 1):
        answer = envs.step(np.zeros((1, 4), np.float32))
        assert answer.success is not None and not answer.terminated
        ends += [step] if answer.truncated else []
    assert ends == [EPISODE_STEPS]
    envs.close()


@installed
def test_a_seed_decides_goals_and_episodes_begin_with_different_ones() -> None:
    env, other = ArmEnv("push"), ArmEnv("push")
    goals = [env.reset(seed=3)[0]["state"][-3:], *(env.reset()[0]["state"][-3:] for _ in range(4))]
    again = [other.reset(seed=3)[0]["state"][-3:], *(other.reset()[0]["state"][-3:] for _ in range(4))]
    np.testing.assert_array_equal(goals, again)
    assert len({tuple(goal) for goal in goals}) > 2


@installed
def test_an_unknown_task_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'hammer'"):
        make_suite("metaworld", ("hamer",), RunConfig())


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"suite metaworld needs the package 'metaworld'.*clearl\[metaworld\]"):
        make_suite("metaworld", (), RunConfig())
