"""Pendulum in one array is Gymnasium's Pendulum-v1, seen and driven through a control scheme."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from whole_runs import assert_same_runs, finish, kill_and_finish

import clearl
from clearl.artifacts import export_agent
from clearl.config import RunConfig
from clearl.errors import ConfigError, EnvironmentFaultError, UnknownNameError
from clearl.experiment import run
from clearl.seeding import derive
from clearl.suites.control import SCHEMES, ControlSuite, PendulumEnvs, parse_task

TASKS = ("pendulum", "pendulum@1", "pendulum@2", "pendulum@3", "pendulum?g=3.5&m=0.7&l=1.3", "pendulum@1?g=0&m=2")


def make(task: str, *, num_envs: int = 3, seed: int = 0) -> PendulumEnvs:
    return ControlSuite((task,), RunConfig()).make(task, num_envs=num_envs, seed=seed)


def some_actions(steps: int, num_envs: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 2, (steps, num_envs, 1)).astype(np.float32)


@pytest.mark.parametrize("task", TASKS)
def test_every_step_is_that_of_gymnasium(task: str) -> None:
    parsed, envs = parse_task(task), make(task, seed=7)
    gain, order = SCHEMES[parsed.scheme]
    others: list[Any] = [gymnasium.make("Pendulum-v1", g=parsed.g) for _ in range(3)]
    for other in others:
        other.unwrapped.m, other.unwrapped.l = parsed.m, parsed.l
    seen = [other.reset(seed=derive(7, i) & 0x7FFFFFFF)[0] for i, other in enumerate(others)]
    frames = envs.reset()
    for actions in some_actions(450, 3):
        np.testing.assert_allclose(frames["state"], np.stack(seen)[:, list(order)], rtol=0, atol=1e-6)
        assert frames["scheme"].nonzero()[1].tolist() == [parsed.scheme] * 3
        step, torques = envs.step(actions), gain * 2 * np.tanh(actions.astype(np.float64))
        frames = step.frames
        if step.first.all():
            seen = [other.reset()[0] for other in others]
            assert not step.valid.any() and not step.reward.any()
            continue
        answers = [other.step(torque.astype(np.float32)) for other, torque in zip(others, torques, strict=True)]
        seen = [answer[0] for answer in answers]
        np.testing.assert_allclose(step.reward, [float(answer[1]) for answer in answers], rtol=1e-6)
        assert step.truncated.tolist() == [answer[3] for answer in answers] and not step.terminated.any()
    assert len({tuple(state) for state in frames["state"].tolist()}) == 3


def test_a_pendulum_that_moves_to_another_vector_goes_on() -> None:
    one, two, whole = make("pendulum", seed=1), make("pendulum", seed=2), make("pendulum", seed=1)
    for envs in (one, two, whole):
        envs.reset()
    mixed = PendulumEnvs.combined([(two, 0), (one, 2)])
    for actions in some_actions(250, 3):
        expected = whole.step(actions)
        found = mixed.step(actions[[0, 2]])
        assert found.frames["state"][1].tolist() == expected.frames["state"][2].tolist()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("pendulum@4", "from 1 to 3"),
        ("pendulum@0", "from 1 to 3"),
        ("pendulum?m=0", "m must be a number above 0"),
        ("pendulum?g=heavy", "g must be a number, got 'heavy'"),
        ("pendulum?l=true", "l must be a number above 0"),
        ("pendulum?mass=1", "parameter of pendulum"),
        ("pendulums", "did you mean"),
    ],
)
def test_a_task_that_is_none_is_refused_with_a_reason(task: str, message: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        parse_task(task)


def test_an_action_that_is_no_number_is_named() -> None:
    envs = make("pendulum@1")
    envs.reset()
    actions = some_actions(1, 3)[0]
    actions[1] = np.nan
    with pytest.raises(EnvironmentFaultError, match=r"pendulum@1.*lower learning_rate"):
        envs.step(actions)


def small_run() -> RunConfig:
    return RunConfig(
        suite="control", tasks=("pendulum", "pendulum@1"), runtime="inline", slots=4, batch_unrolls=3, unroll_steps=8,
        frames_per_visit=1000, buffer_frames=400, eval_every_frames=500, eval_episodes=2, eval_max_steps=20,
        checkpoint_every_frames=150, replay_store="disk", normalise_observations=True, scale_returns=True,
        layer_norm=True, action_std="free", learner_threads=1,
    )  # fmt: skip


def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    config = small_run()
    finish(config, tmp_path / "whole")
    kill_and_finish(config, tmp_path / "killed", kills=2, whole=tmp_path / "whole", rng=random.Random(1))
    assert_same_runs(tmp_path / "whole", tmp_path / "killed", config)


def test_an_exported_agent_takes_the_state_and_the_scheme(tmp_path: Path) -> None:
    run(small_run(), tmp_path / "run", console=False)
    export_agent(tmp_path / "run", tmp_path / "agent", trust=False)
    agent = clearl.load_agent(tmp_path / "agent")
    action = agent.act({"state": np.zeros(3, np.float32), "scheme": 1}, task="pendulum@1")
    assert action.shape == (1,) and abs(float(action[0])) <= 2


@pytest.mark.parametrize("task", ["pendulum", "pendulum@2"])
def test_the_picture_shows_where_the_rod_points(task: str) -> None:
    suite = ControlSuite((task,), RunConfig())
    envs = suite.make(task, num_envs=3, seed=0)
    envs.reset()
    state = envs.get_state()
    up, left, down = (
        suite.render(task, frame) for frame in envs.set_state({**state, "angle": np.array([0, np.pi / 2, np.pi])})
    )
    for picture, (x, y) in ((up, (80, 30)), (left, (30, 80)), (down, (80, 130))):
        assert [at for at in ((80, 30), (30, 80), (80, 130)) if tuple(picture[at[::-1]]) == (204, 77, 77)] == [(x, y)]
