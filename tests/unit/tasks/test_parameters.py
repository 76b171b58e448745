"""A task is an id with parameters: constructor keyword, else attribute, else option of reset, else an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import broken_envs  # noqa: F401 - registers them
import gymnasium
import pytest
from gymnasium.envs.classic_control import utils

from clearl.cli import check
from clearl.config import RunConfig
from clearl.errors import ConfigError, UnknownNameError
from clearl.suites import make_suite
from clearl.tasks.in_play import attributes_in_play
from clearl.tasks.parameters import expand_ranges, join_task, split_task
from clearl.tasks.reset_options import reset_options
from clearl.tasks.single import check_parameters, list_parameters, make_env


def test_names_are_split_and_joined() -> None:
    task = "Env-v1?g=2&scale=0.5&flip=true&mode=fast"
    assert split_task(task) == ("Env-v1", {"g": 2, "scale": 0.5, "flip": True, "mode": "fast"})
    assert join_task(*split_task(task)) == task
    assert split_task("Env-v1") == ("Env-v1", {})
    assert join_task("Env-v1", {"g": 1 / 3}) == "Env-v1?g=0.333333"


@pytest.mark.parametrize("task", ["E?", "E?g", "E?g=", "E?=2", "E?g=1&g=2", "E?a b=1"])
def test_a_name_that_is_none_is_refused(task: str) -> None:
    with pytest.raises(ConfigError, match="parameter"):
        split_task(task)


def test_a_keyword_an_attribute_and_an_option_reach_the_environment() -> None:
    pendulum = make_env("Pendulum-v1?g=2&m=3&x_init=0.001&y_init=0.001")
    assert pendulum.unwrapped.g == 2 and pendulum.unwrapped.m == 3.0
    for seed in (0, 1):
        angle, _ = pendulum.reset(seed=seed)
        assert angle[0] > 0.999, "x_init bounds the first angle"
    pendulum.close()
    pole = make_env("CartPole-v1?length=2")
    assert pole.unwrapped.length == 2.0 and isinstance(pole.unwrapped.length, float)
    pole.close()


class Helped(gymnasium.Env[Any, Any]):
    """Reads options of reset in helpers: a function of a module, a method, and a class that it inherits from."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.scatter(1, settings=options)
        self.unrelated(seed)
        return utils.maybe_parse_reset_bounds(options, -1, 1), {}

    def scatter(self, times: int, settings: dict[str, Any] | None) -> None:
        self.spread = (settings or {}).get("nothing") if settings is None else settings["spread"]

    def unrelated(self, options: Any) -> None:
        self.other = options and options["not_of_reset"]


class Inherits(Helped):
    """Passes its options on."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("kind", [Helped, Inherits])
def test_options_that_a_helper_of_reset_reads_are_found(kind: type[Helped]) -> None:
    assert set(reset_options(kind())) == {"spread", "low", "high"}


def test_the_options_of_classic_control_reach_reset() -> None:
    assert list_parameters("CartPole-v1").options == ("low", "high")
    for seed in (0, 1):
        pole = make_env("CartPole-v1?low=0.01&high=0.02")
        state, _ = pole.reset(seed=seed)
        assert (state >= 0.01).all() and (state <= 0.02).all()
        pole.close()


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"'lenth'; did you mean 'length'.*attribute: gravity") as caught:
        make_env("CartPole-v1?lenth=2")
    assert "constructor: sutton_barto_reward" in str(caught.value)
    with pytest.raises(ConfigError, match="'CartPole-v1.length=nan': length is NaN; give a number"):
        make_env("CartPole-v1?length=nan")
    with pytest.raises(ConfigError, match=r"length is float \(0.5\), got 'long'"):
        make_env("CartPole-v1?length=long")


def test_a_range_becomes_equal_steps_for_a_drift_only() -> None:
    tasks = expand_ranges(["CartPole-v1?length=0.5..2.0", "A"], 4)
    assert tasks == (*(f"CartPole-v1?length={v}" for v in ("0.5", "1", "1.5", "2")), "A")
    with pytest.raises(ConfigError, match="for protocol drift"):
        expand_ranges(["CartPole-v1?length=0.5..2.0"], None)
    for bad in ("0.5..", "a..b", "1..1"):
        with pytest.raises(ConfigError, match="two different numbers"):
            expand_ranges([f"CartPole-v1?length={bad}"], 3)


def test_a_suite_has_a_task_for_each_value() -> None:
    suite = make_suite("gym:CartPole-v1?length=0.5..1", (), RunConfig(protocol="drift", drift_values=2, torso="mlp"))
    assert suite.tasks == ("CartPole-v1?length=0.5", "CartPole-v1?length=1")
    again = make_suite("gym:CartPole-v1?length=0.5..1", suite.tasks, RunConfig(protocol="drift", drift_values=2))
    assert again.tasks == suite.tasks


def test_check_lists_the_parameters(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert check.main(["gym:CartPole-v1", "--steps", "50"]) == 0
    assert "parameters (CartPole-v1?name=value): constructor: sutton_barto_reward; attribute: gravity" in (
        capsys.readouterr().out
    )
    assert list_parameters("Pendulum-v1").options == ("x_init", "y_init")


def test_the_time_limit_of_a_registered_environment_is_a_parameter() -> None:
    env = make_env("BrokenTruncating-v0")
    assert env.spec.max_episode_steps == 200
    env.close()
    env = make_env("BrokenEndless-v0?max_episode_steps=700")  # registered without a limit
    env.reset(seed=0)
    ends = [env.step(0)[3] for _ in range(700)]
    assert ends == [False] * 699 + [True]
    assert make_env("CartPole-v1?max_episode_steps=1000&length=2").spec.max_episode_steps == 1000
    assert "; time limit: max_episode_steps" in str(list_parameters("CartPole-v1"))
    for wrong in ("0", "2.5", "true"):
        with pytest.raises(ConfigError, match="max_episode_steps is a number of steps, or -1 for no limit"):
            make_env(f"CartPole-v1?max_episode_steps={wrong}")


def test_keywords_reach_a_constructor_that_requires_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "required_keywords.py").write_text(
        "import gymnasium\nfrom broken_envs import Walk\n\nclass Wind(Walk):\n    def __init__(self, *, wind):\n"
        "        self._wind = wind\n\n"
        "gymnasium.register('Wind-v0', Wind, max_episode_steps=50)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert make_env("required_keywords:Wind-v0?wind=3").unwrapped._wind == 3
    assert list_parameters("Wind-v0?wind=3").keywords == ("wind", "max_episode_steps")
    assert check.main(["gym:Wind-v0?wind=3", "--steps", "100"]) == 0
    assert "    parameters (Wind-v0?name=value): constructor: wind; " in capsys.readouterr().out


def test_check_says_how_each_part_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["gym:BrokenManyChannels-v0,BrokenStrictMask-v0,Pendulum-v1", "--steps", "30"]) == 0
    said = capsys.readouterr().out
    assert "    observation (9, 84, 84): image, 84 channels, 9 x 84 pixels\n    actions: 2 options\n" in said
    assert "    observation (3,): vector, 3 numbers\n    actions: 2 options, masked by state\n" in said
    assert "    actions: 1 real number within bounds\n" in said


def test_parameters_and_drift_are_checked_within_the_masks_of_states() -> None:
    check_parameters("BrokenStrictMask-v0?gain=2")
    found = attributes_in_play(("BrokenStrictMask-v0", "BrokenStrictMask-v0?gain=2"), make_env)
    assert found["BrokenStrictMask-v0?gain=2"] == {"gain": 2.0}
