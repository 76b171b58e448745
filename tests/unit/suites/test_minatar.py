from __future__ import annotations

import importlib.util
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.seeding import derive
from clearl.suites.minatar import CHANNELS, MinAtarEnvs, MinAtarSuite, MinAtarTask, control_scheme, parse_task

ALL_TASKS = [f"{game}{at}" for game in CHANNELS for at in ("", "@1", "@2")]


def make(task: str, *, num_envs: int = 3, seed: int = 0, sticky: float = 0.0) -> MinAtarEnvs:
    return MinAtarEnvs(parse_task(task), num_envs=num_envs, seed=seed, sticky=sticky)


def test_the_first_two_control_schemes_are_the_measured_ones() -> None:
    assert control_scheme(0) == (0, 1, 2, 3, 4, 5)
    assert control_scheme(1) == (0, 2, 1, 4, 3, 5)
    assert control_scheme(2) == (3, 0, 2, 5, 4, 1)


@pytest.mark.parametrize(("given", "played"), [(None, 0.1), (0.0, 0.0), (0.3, 0.3)])
def test_sticky_actions_are_the_packages_own_unless_given(given: float | None, played: float) -> None:
    suite = MinAtarSuite(("breakout",), RunConfig(sticky_action_probability=given))
    assert suite.make("breakout", num_envs=1, seed=0)._sticky == played


def test_all_control_schemes_steer_differently() -> None:
    tables = [control_scheme(k) for k in range(7)]
    assert all(sorted(table) == list(range(6)) for table in tables)
    assert len({(table.index(1), table.index(3)) for table in tables}) == 7


@pytest.mark.parametrize("task", ALL_TASKS)
def test_only_a_control_scheme_sets_its_mark(task: str) -> None:
    envs = make(task)
    frames = envs.reset()
    parsed = parse_task(task)
    plain = make(parsed.game).reset()
    assert frames.shape == (3, 10, 10, 10)
    assert frames.dtype == bool
    if parsed.mark is None:
        assert not frames[:, CHANNELS[parsed.game] :].any()
        return
    channel, rows = parsed.mark
    assert frames[:, channel, :rows].all()
    assert not plain[:, channel, :rows].any()
    frames[:, channel, :rows] = False
    np.testing.assert_array_equal(frames, plain)


@pytest.mark.parametrize("scheme", [1, 2, 3])
def test_a_scheme_is_the_game_under_other_buttons(scheme: int) -> None:
    plain, other = make("space_invaders"), make(f"space_invaders@{scheme}")
    plain.reset()
    other.reset()
    table = np.array(control_scheme(scheme))
    actions = np.random.default_rng(1).integers(0, 6, (60, 3))
    for action in actions:
        expected, answer = plain.step(table[action]), other.step(action)
        np.testing.assert_array_equal(answer.reward, expected.reward)
        np.testing.assert_array_equal(answer.frames[:, :6], expected.frames[:, :6])


def untouched_game(game: str) -> Any:
    """MinAtar's own file, as it is installed."""
    package = importlib.util.find_spec("minatar")
    assert package is not None and package.origin is not None
    path = Path(package.origin).parent / "environments" / f"{game}.py"
    return SimpleNamespace(**runpy.run_path(str(path))).Env(ramping=True)


@pytest.mark.parametrize("game", CHANNELS)
def test_frames_and_rewards_are_those_of_the_game(game: str) -> None:
    env = untouched_game(game)
    env.random = np.random.RandomState(derive(5, 0) & 0xFFFFFFFF)
    env.reset()
    envs = make(game, num_envs=1, seed=5)
    np.testing.assert_array_equal(envs.reset()[0, : CHANNELS[game]], env.state().transpose(2, 0, 1))
    for action in np.random.default_rng(2).integers(0, 6, 600):
        reward, over = env.act(int(action))
        answer = envs.step(np.array([action]))
        assert answer.reward[0] == reward
        assert answer.terminated[0] == over
        if over:
            env.reset()
        np.testing.assert_array_equal(answer.frames[0, : CHANNELS[game]], env.state().transpose(2, 0, 1))


def test_freeway_ends_by_its_clock_which_is_no_death() -> None:
    envs = make("freeway", num_envs=2)
    envs.reset()
    answers = [envs.step(np.zeros(2, np.int64)) for _ in range(2503)]
    assert not any(answer.terminated.any() for answer in answers)
    assert [step for step, answer in enumerate(answers) if answer.truncated.any()] == [2500]
    last, restart = answers[2500:2502]
    assert last.truncated.all()
    assert not last.first.any()
    assert [step for step, answer in enumerate(answers) if not answer.valid.all()] == [2501]
    assert not restart.valid.any()
    assert restart.first.all()
    assert not restart.reward.any()
    assert not np.array_equal(restart.frames, last.frames)


def test_sticky_actions_repeat_the_last_one_with_that_probability() -> None:
    envs = make("breakout", num_envs=400, seed=3, sticky=0.25)
    frames = envs.reset()
    assert (frames[:, 0, 9].argmax(1) == 4).all()
    frames = envs.step(np.full(400, 3)).frames
    # The action before the first is "nothing", so that about a quarter of the paddles stay.
    assert 0.17 < (frames[:, 0, 9].argmax(1) == 4).mean() < 0.33


@pytest.mark.parametrize("task", [*CHANNELS, "seaquest@2"])
def test_the_state_survives_json_and_goes_on_bit_for_bit(task: str) -> None:
    envs, twin = make(task, sticky=0.1), make(task, seed=99, sticky=0.1)
    frames = envs.reset()
    rng = np.random.default_rng(0)
    for _ in range(150):
        frames = envs.step(rng.integers(0, 6, 3)).frames
    state = envs.get_state()
    plain = {k: v for k, v in state.items() if not isinstance(v, np.ndarray)}
    state.update(json.loads(json.dumps(plain)))
    actions = rng.integers(0, 6, (150, 3))
    expected = [envs.step(action) for action in actions]
    np.testing.assert_array_equal(twin.set_state(state), frames)
    for action, answer in zip(actions, expected, strict=True):
        again = twin.step(action)
        np.testing.assert_array_equal(again.frames, answer.frames)
        np.testing.assert_array_equal(again.reward, answer.reward)
        np.testing.assert_array_equal(again.terminated, answer.terminated)


def test_a_state_of_another_game_is_refused() -> None:
    envs = make("breakout")
    envs.reset()
    with pytest.raises(ConfigError, match="3 games of breakout"):
        make("asterix").set_state(envs.get_state())


@pytest.mark.parametrize("task", ["seaquest@3", "freeway@4", "breakout@0", "breakout@x", "breakout@"])
def test_a_scheme_that_could_not_be_seen_is_refused(task: str) -> None:
    with pytest.raises(ConfigError, match="from 1 to"):
        parse_task(task)


def test_pictures_show_the_paddle_over_the_mark() -> None:
    suite = MinAtarSuite(("breakout", "breakout@1"), RunConfig())
    for task in suite.tasks:
        frame = suite.make(task, num_envs=1, seed=0).reset()[0]
        picture = suite.render(task, frame)
        assert picture.shape == (160, 160, 3)
        np.testing.assert_array_equal(picture[150, 70], [0, 114, 178])
        assert picture[150, 10].any() == (task == "breakout@1")


def test_marks_never_lie_on_cells_that_the_game_uses() -> None:
    for game in CHANNELS:
        used = np.zeros((10, 10, 10), bool)
        envs = make(game, num_envs=8)
        envs.reset()
        rng = np.random.default_rng(0)
        for _ in range(400):
            used |= envs.step(rng.integers(0, 6, 8)).frames.any(0)
        for scheme in range(1, MinAtarTask(game).schemes + 1):
            channel, rows = MinAtarTask(game, scheme).mark or (0, 0)
            assert rows
            assert not used[channel, :rows].any(), (game, scheme)


def test_a_hidden_scheme_changes_the_controls_and_nothing_that_is_seen() -> None:
    plain, marked, hidden = (
        MinAtarSuite((task,), RunConfig(suite="minatar", tasks=(task,))).make(task, num_envs=3, seed=4)
        for task in ("breakout", "breakout@1", "breakout~1")
    )
    assert hidden.get_state()["game"] == "breakout"
    frames = [envs.reset(seed=7) for envs in (plain, marked, hidden)]
    assert np.array_equal(frames[0], frames[2]) and not np.array_equal(frames[0], frames[1])
    table = control_scheme(1)
    for number in range(60):
        actions = np.full(3, number % 6)
        there = hidden.step(actions)
        here = plain.step(np.array([table[action] for action in actions]))
        assert np.array_equal(here.frames, there.frames) and np.array_equal(here.reward, there.reward)
    with pytest.raises(ConfigError, match="after '~' must be a number from 1 to 6 in breakout"):
        parse_task("breakout~9")
