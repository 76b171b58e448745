"""Action spaces: what networks see of them, and what environments are given."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from clearl.errors import ConfigError, CorruptFileError, UnfitMaskError
from clearl.spaces import ActionSpec
from clearl.tasks.actions import TaskActions, actions_from_json, common_actions, describe_actions


def actions_of(space: Any) -> TaskActions:
    """Through JSON, as in an exported agent."""
    return actions_from_json(json.loads(json.dumps(describe_actions("task", space))), "a file")


SPACES = {
    "discrete": spaces.Discrete(3, start=-1),
    "multi-discrete": spaces.MultiDiscrete(np.array([[2, 3], [4, 1]])),
    "multi-binary": spaces.MultiBinary((2, 2)),
    "box": spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 5.0]), dtype=np.float64),
    "whole numbers": spaces.Box(0, 9, (2,), np.int64),
    "unbounded": spaces.Box(-np.inf, np.inf, (2, 2)),
    "half bounded": spaces.Box(0, np.inf, (2,)),
    "enormous": spaces.Box(-1e30, 1e30, (1,)),
    "one point": spaces.Box(1, 1, (2,)),
    "nested": spaces.Tuple(
        (spaces.Discrete(2), spaces.Dict({"arm": spaces.Box(-1, 1, (3,)), "grip": spaces.MultiBinary(2)}))
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_whatever_is_sampled_lies_in_the_space(name: str) -> None:
    space, actions = SPACES[name], actions_of(SPACES[name])
    spec = common_actions({"task": actions})
    rng = np.random.default_rng(0)
    choices = [rng.integers(0, count, 50) for count in spec.choices]
    reals = [rng.normal(0, 30, 50) for _ in spec.bounded]
    stored = np.stack([*choices, *reals], 1).astype(spec.dtype).reshape(50, *spec.shape)
    for taken in actions.converter(spec)(stored):
        assert space.contains(taken), taken


def test_a_box_is_filled_by_the_tanh() -> None:
    actions = actions_of(SPACES["box"])
    spec = common_actions({"task": actions})
    assert spec == ActionSpec((), (True, True))
    low, middle, high = actions.converter(spec)(np.array([[-99, -99], [0, 0], [99, 99]], np.float32))
    assert low.tolist() == [-2, 0] and middle.tolist() == [0, 2.5] and high.tolist() == [2, 5]
    assert low.dtype == np.float64


def test_what_cannot_be_squashed_is_clipped() -> None:
    for name, expected in (("half bounded", [0, 7]), ("enormous", [-3])):
        actions = actions_of(SPACES[name])
        spec = common_actions({"task": actions})
        assert not any(spec.bounded)
        (taken,) = actions.converter(spec)(np.array([[-3, 7][: spec.reals]], np.float32))
        assert taken.tolist() == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.int8])
def test_numbers_beyond_a_type_stay_within_it(dtype: Any) -> None:
    whole = np.dtype(dtype).kind == "i"
    ends = (np.iinfo(dtype).min, np.iinfo(dtype).max) if whole else (-np.inf, np.inf)
    space = spaces.Box(*ends, (2,), dtype)
    actions = actions_of(space)
    (taken,) = actions.converter(common_actions({"task": actions}))(np.array([[3e38, -3e38]], np.float32))
    assert space.contains(taken) and np.isfinite(taken).all() and taken[0] > 100 and taken[1] < -100


def test_smaller_actions_are_padded_and_masked() -> None:
    small, large = actions_of(spaces.MultiDiscrete([3])), actions_of(spaces.MultiDiscrete([2, 4]))
    spec = common_actions({"small": small, "large": large})
    assert spec.choices == (3, 4)
    assert small.mask(spec).tolist() == [True] * 3 + [False] * 4
    assert large.mask(spec).tolist() == [True, True, False] + [True] * 4
    assert small.converter(spec)(np.array([[2, 0]]))[0].tolist() == [2]
    one, two = actions_of(spaces.Box(-1, 1, (1,))), actions_of(spaces.Box(-np.inf, np.inf, (2,)))
    spec = common_actions({"one": one, "two": two})
    assert spec.bounded == (False, False) and one.mask(spec).tolist() == [True, False]
    assert one.converter(spec)(np.array([[5, 5]], np.float32))[0].tolist() == [1], "within its own bounds all the same"


def test_tasks_of_both_kinds_are_refused_by_name() -> None:
    tasks = {"buttons": actions_of(spaces.Discrete(2)), "stick": actions_of(spaces.Box(-1, 1, (1,)))}
    with pytest.raises(ConfigError, match="buttons has discrete actions, stick continuous ones"):
        common_actions(tasks)


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        (spaces.Text(3), "Text actions"),
        (spaces.Tuple((spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2)))), "Sequence actions"),
        (spaces.Box(-1, 1, (0,)), "hold nothing"),
    ],
    ids=str,
)
def test_what_cannot_be_an_action_is_refused(space: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"task has.*{problem}"):
        describe_actions("task", space)


@pytest.mark.parametrize(
    "description",
    [
        None,
        {},
        {"kind": "box"},
        {"kind": "tuple", "items": []},
        {"kind": "box", "low": ["x"], "high": [1], "dtype": "f4"},
    ],
    ids=str,
)
def test_a_damaged_description_is_refused(description: Any) -> None:
    with pytest.raises(CorruptFileError, match="a file: not the actions of a task"):
        actions_from_json(description, "a file")


@pytest.mark.parametrize(
    "mask",
    [[1, 0, 0, 1, 1], np.array([1, 0, 0, 1, 1]), (np.array([1, 0]), np.array([0, 1, 1])), (1, 0, 0, 1, 1)],
    ids=str,
)
def test_flags_of_a_state_are_read_in_every_form(mask: Any) -> None:
    actions, wider = actions_of(spaces.MultiDiscrete([2, 3])), actions_of(spaces.MultiDiscrete([4, 3]))
    spec = common_actions({"own": actions, "wider": wider})
    assert actions.flags(mask).tolist() == [True, False, False, True, True]
    assert actions.state_mask(mask, spec).tolist() == [True, False, False, False, False, True, True]


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        ([1, 0, 0], "3 flags instead of 5"),
        (((1, 0), (0, (1, 1))), "give an array of flags"),
        ((), "give an array of flags"),
        ({"a": [1, 0]}, "give an array of flags"),
        ([[1, 0], [0, 1, 1]], "give an array of flags"),
        ("10011", "give an array of flags"),
        ([0, 0, 1, 1, 1], "allows no action at all"),
        ([1, 1, 1, 1, np.nan], "other numbers than 0 and 1: 1.0, nan; give 1 for what the state allows"),
        ([0, -np.inf, 0, 0, -np.inf], "other numbers than 0 and 1: -inf, 0.0; give 1"),
        ([2, 1, 1, 1, 1], "other numbers than 0 and 1"),
    ],
    ids=str,
)
def test_what_is_no_mask_is_named_with_the_remedy(mask: Any, problem: str) -> None:
    with pytest.raises(UnfitMaskError, match=f"action_mask .*{problem}"):
        actions_of(spaces.MultiDiscrete([2, 3])).flags(mask)
