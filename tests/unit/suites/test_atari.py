from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from clearl.config import RunConfig, to_yaml
from clearl.errors import UnknownNameError
from clearl.records.run_dir import RunDir
from clearl.suites import make_suite
from clearl.suites.atari import AtariEnvs, AtariSuite
from clearl.tasks.vectors import allow_env_threads, env_threads
from clearl.types import EnvStep
from clearl.wiring import load_factory

pytest.importorskip("ale_py")
FIRE = 1


def breakout(config: RunConfig, *, training: bool = True, num_envs: int = 1) -> AtariEnvs:
    return AtariSuite(("breakout",), config).make("breakout", num_envs=num_envs, seed=0, training=training)


def lose(envs: AtariEnvs, *, steps: int) -> list[EnvStep]:
    """Serve and stand still: a life is lost every 25 steps or so."""
    envs.reset()
    return [envs.step(np.full(envs.num_envs, FIRE if step % 5 == 0 else 0)) for step in range(steps)]


def test_the_papers_six_games_are_the_default_with_all_actions() -> None:
    suite = make_suite("atari", (), RunConfig())
    assert suite.tasks == ("space_invaders", "krull", "beam_rider", "hero", "star_gunner", "ms_pacman")
    assert suite.spec.action.choices[0] == 18
    assert suite.spec.frames_per_step == 4


@pytest.mark.parametrize(
    ("config", "frame", "observation"),
    [
        (RunConfig(), (1, 84, 84), (4, 84, 84)),
        (RunConfig(grayscale=True, frame_stack=2), (1, 84, 84), (2, 84, 84)),
        (RunConfig(grayscale=False), (3, 84, 84), (3, 84, 84)),
    ],
)
def test_grey_frames_are_stacked_and_colour_is_not(
    config: RunConfig, frame: tuple[int, ...], observation: tuple[int, ...]
) -> None:
    suite = AtariSuite(("breakout",), config)
    assert suite.spec.observation.frame_shape == frame
    assert suite.spec.observation.shapes[""] == observation
    frames = suite.make("breakout", num_envs=2, seed=0).reset()
    assert frames.shape == (2, *frame)
    assert frames.dtype == np.uint8
    assert frames.any()
    if frame[0] == 3:
        assert not np.array_equal(frames[:, 0], frames[:, 1])


def test_a_whole_game_ends_with_the_last_life() -> None:
    answers = lose(breakout(RunConfig(noop_max=0)), steps=200)
    ends = [step for step, answer in enumerate(answers) if answer.terminated[0]]
    assert len(ends) == 1
    assert 100 < ends[0] < 180
    assert not answers[ends[0]].first[0]
    after = answers[ends[0] + 1]
    assert after.first[0]
    assert not after.valid[0]


@pytest.mark.parametrize(("training", "deaths"), [(True, 5), (False, 1)])
def test_a_lost_life_terminates_in_training_only_and_the_game_goes_on(training: bool, deaths: int) -> None:
    envs = breakout(RunConfig(noop_max=0, life_loss_terminates=True), training=training)
    answers = lose(envs, steps=150)
    terminated = [answer for answer in answers if answer.terminated[0]]
    assert len(terminated) == deaths
    # All but the last death open the next episode at once; the game itself is reset only after the last.
    assert [bool(answer.first[0]) for answer in terminated] == [True] * (deaths - 1) + [False]
    assert sum(not answer.valid[0] for answer in answers) == 1


def test_scores_are_not_clipped() -> None:
    suite = AtariSuite(("space_invaders",), RunConfig(noop_max=0))
    envs = suite.make("space_invaders", num_envs=1, seed=0)
    envs.reset()
    rewards = {float(envs.step(np.array([FIRE])).reward[0]) for _ in range(120)}
    assert max(rewards) >= 5


def test_no_op_starts_differ_between_the_copies() -> None:
    frames = AtariSuite(("ms_pacman",), RunConfig()).make("ms_pacman", num_envs=4, seed=0)
    first = frames.reset()
    later = np.stack([frames.step(np.zeros(4, np.int64)).frames for _ in range(80)])
    assert first.shape == (4, 1, 84, 84)
    assert any(not np.array_equal(later[:, 0], later[:, i]) for i in (1, 2, 3))


def test_sticky_actions_make_equal_play_differ() -> None:
    def play(probability: float) -> np.ndarray:
        envs = breakout(RunConfig(noop_max=0, sticky_action_probability=probability), num_envs=2)
        envs.reset()
        return np.stack([envs.step(np.full(2, FIRE + step % 4)).frames for step in range(30)])

    sure, sticky = play(0.0), play(0.5)
    np.testing.assert_array_equal(sure[:, 0], sure[:, 1])
    assert not np.array_equal(sticky[:, 0], sticky[:, 1])


def test_any_bundled_game_can_be_named_and_others_cannot() -> None:
    assert make_suite("atari", ("pong",), RunConfig()).tasks == ("pong",)
    with pytest.raises(UnknownNameError, match="did you mean 'ms_pacman'"):
        make_suite("atari", ("mspacman",), RunConfig())


@pytest.mark.parametrize(("allowed", "used"), [(None, 1), (2, 2), (8, 3)])
def test_emulators_use_the_threads_that_the_runtime_allows(allowed, used, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite does not ask which runtime that is."""
    given: dict[str, Any] = {}
    monkeypatch.setattr("clearl.tasks.vectors._threads", 1)
    monkeypatch.setattr(
        "ale_py.vector_env.AtariVectorEnv", lambda *args, **options: given.update(options) or Mock(num_envs=3)
    )
    suite = AtariSuite(("pong",), RunConfig(runtime="inline"))
    if allowed is not None:
        allow_env_threads(allowed)
    suite.make("pong", num_envs=3, seed=0)
    assert given["num_threads"] == used


def test_the_processes_of_a_run_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearl.tasks.vectors._threads", 1)
    monkeypatch.setattr("clearl.wiring.cores", lambda: 8)
    RunDir.create(tmp_path / "run", config_text="", meta={"replay": {"capacity_unrolls": 1}})
    for workers, threads in ((2, 4), (None, 1), (32, 1)):
        load_factory(to_yaml(RunConfig(suite="minatar", workers=workers)), tmp_path / "run")
        assert env_threads() == threads
