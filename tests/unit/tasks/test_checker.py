from __future__ import annotations

from types import SimpleNamespace

import broken_envs  # noqa: F401 - registers them
import pytest
from gymnasium.spaces import Discrete, Text

from clearl.errors import UnknownNameError
from clearl.tasks.checker import _check_spaces, check_env


@pytest.mark.parametrize(
    "env_id",
    [
        "gym:CartPole-v1", "Acrobot-v1", "BrokenWalk-v0", "BrokenPicture-v0", "BrokenStrictMask-v0", "BrokenAsked-v0",
        "BrokenWrappedMask-v0", "BrokenStrictParts-v0",
    ],
)  # fmt: skip
def test_sound_environments_get_a_clean_bill(env_id: str) -> None:
    assert check_env(env_id, steps=500) == []


@pytest.mark.parametrize(
    ("name", "severity", "problem", "remedy"),
    [
        ("RaisesLater", "error", "step 4 of random play raised RuntimeError: the motor is on fire", "traceback"),
        ("RaisesInReset", "error", "reset(seed=1) raised ZeroDivisionError", "super().reset(seed=seed)"),
        ("RaisesInInit", "error", "could not be made: OSError: no such device", "gymnasium.make"),
        ("NanObservation", "error", "the observation holds NaN or infinity", "observation_space promises"),
        ("InfReward", "error", "a reward is inf", "finite"),
        ("WrongShape", "error", "shape (2,) instead of (3,)", "observation_space promises"),
        ("WrongDtype", "error", "dtype float32 instead of uint8", "observation_space promises"),
        ("OutOfBounds", "warning", "outside observation_space", "bounds"),
        ("OldReset", "error", "reset(seed=1) raised TypeError", "seed=None, options=None"),
        ("BareObservation", "error", "reset returns ndarray", "(observation, info)"),
        ("OldStep", "error", "step returns a tuple of 4", "terminated, truncated"),
        ("IgnoresSeed", "warning", "same seed and actions differ", "self.np_random"),
        ("CarriesOver", "warning", "after reset with the same seed", "reset all"),
        ("ClockKills", "warning", "terminated after 25 steps", "truncated"),
        ("Endless", "warning", "no episode ended in 500 random steps", "max_episode_steps"),
        ("IntFlags", "warning", "terminated is int, not a bool", "bool(terminated)"),
        ("HugeNumbers", "warning", "observations reach", "--normalise-observations"),
        ("HugeNumbers", "note", "rewards reach 50, and training takes them as they are", "--scale-returns"),
        ("NoReward", "note", "no reward in 500 random steps", "reward steps on the way"),
        ("Spoken", "error", "has Text actions", "TransformAction"),
        ("EmptyActions", "error", "which hold nothing", "remove the empty part"),
        ("DictObservation", "error", "part 'a' of the observation is missing", "observation_space promises"),
        ("FourAxes", "error", "instead of (2, 2, 2, 2)", "observation_space promises"),
        ("ToldStory", "error", "has Text observations", "FlattenObservation"),
        ("AllMasked", "error", "action_mask allows no action at all after 1 steps", "allow one"),
        ("LongMask", "error", "action_mask has 5 flags instead of 2 after 1 steps", "one for each option"),
        ("RaggedMask", "error", "action_mask is [[1], [1, 0]] after 1 steps", "give an array of flags"),
        ("LateMask", "warning", "not in that of reset: training ignores it", "return it from reset, too"),
        ("NoInfo", "error", "the info of a step is NoneType", "return a dict"),
        ("GreyNumbers", "warning", "shape (4, 3) is read as image, 1 channel, 4 x 3 pixels", "FlattenObservation"),
        ("ManyChannels", "warning", "(9, 84, 84) is read as image, 84 channels, 9 x 84", "move it to the end"),
        ("StackedPictures", "warning", "(4, 8, 8, 3) is read as vector, 768 numbers", "--frame-stack"),
    ],
)
def test_every_fault_is_found_with_its_remedy(name: str, severity: str, problem: str, remedy: str) -> None:
    findings = check_env(f"Broken{name}-v0", steps=500)
    assert [f for f in findings if f.severity == severity and problem in f.problem and remedy in f.remedy], findings


def test_a_fault_of_the_environment_comes_with_its_own_traceback() -> None:
    (finding,) = check_env("BrokenRaisesLater-v0", steps=500)
    assert "broken_envs.py" in finding.problem
    assert 'raise RuntimeError("the motor is on fire")' in finding.problem


def test_the_worst_comes_first() -> None:
    severities = [finding.severity for finding in check_env("BrokenHugeNumbers-v0", steps=500)]
    assert severities == ["warning", "note"]


def test_an_unknown_id_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'CartPole-v1'"):
        check_env("CartPol-v1")


def test_a_task_that_is_mistyped_is_to_be_corrected() -> None:
    (finding,) = check_env("CartPole-v1?length=")
    assert "parameters are written as ?name=value" in finding.problem and finding.remedy == "correct the task"


def test_problem_and_remedy_are_told_apart_whatever_the_words_are() -> None:
    bare = SimpleNamespace(observation_space=Discrete(2), action_space=Text(3))
    (finding,) = _check_spaces("a; b", bare, 1)
    assert finding.problem.startswith("a; b has Text actions") and finding.remedy.startswith("wrap it")
