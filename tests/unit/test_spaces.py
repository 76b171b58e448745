"""Specs: what they say about storage, and how files hold them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from clearl.errors import CorruptFileError
from clearl.spaces import (
    ActionSpec,
    ObservationSpec,
    PartSpec,
    TaskSpec,
    discrete_spec,
    spec_from_json,
    spec_to_json,
)

PARTS = {"camera": PartSpec((3, 8, 8), "uint8"), "joints": PartSpec((5,), "float32")}


def test_a_single_choice_is_stored_as_one_integer() -> None:
    action = ActionSpec.discrete(6)
    assert (action.shape, action.dtype, action.mask_size, action.policy_size) == ((), "int64", 6, 6)


def test_choices_and_real_numbers_are_stored_side_by_side() -> None:
    action = ActionSpec(choices=(3, 4), bounded=(True, False))
    assert (action.shape, action.dtype, action.mask_size, action.policy_size) == ((4,), "float32", 9, 11)
    assert ActionSpec(choices=(3, 4)).dtype == "int64"


def test_frames_of_several_parts_are_records_and_only_images_are_stacked() -> None:
    observation = ObservationSpec(PARTS, stack=4)
    assert observation.frame_shape == ()
    assert observation.frame_dtype.names == ("camera", "joints")
    assert observation.shapes == {"camera": (12, 8, 8), "joints": (5,)}
    assert discrete_spec((2,), "float32", 3, stack=2).observation.shapes == {"": (4,)}
    assert np.zeros(2, observation.frame_dtype)["joints"].shape == (2, 5)


@pytest.mark.parametrize(
    "spec",
    [
        discrete_spec((1, 84, 84), "uint8", 18, stack=4, frames_per_step=4),
        TaskSpec(ObservationSpec(PARTS, 2), ActionSpec((2, 3), (True, False)), 2),
    ],
)
def test_a_spec_comes_back_from_json(spec: TaskSpec) -> None:
    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec))), "a file") == spec


def test_the_flat_form_of_version_0_1_is_read() -> None:
    flat = {"frame_shape": [6], "frame_dtype": "float32", "num_actions": 3, "stack": 2, "frames_per_step": 1}
    assert spec_from_json(flat, "meta.json") == discrete_spec((6,), "float32", 3, stack=2)


@pytest.mark.parametrize(
    "change",
    [
        {"frames_per_step": 0},
        {"frames_per_step": True},
        {"extra": 1},
        {"action": {"choices": [], "bounded": []}},
        {"action": {"choices": [10**9], "bounded": []}},
        {"action": {"choices": [2], "bounded": ["yes"]}},
        {"observation": {"parts": {}, "stack": 1}},
        {"observation": {"parts": {"": {"shape": [10_000, 10_000], "dtype": "bool"}}, "stack": 1}},
        {"observation": {"parts": {"": {"shape": [2], "dtype": "object"}}, "stack": 1}},
        {"observation": None},
    ],
    ids=str,
)
def test_what_no_environment_can_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptFileError, match="a file: not the observations and actions"):
        spec_from_json({**spec_to_json(discrete_spec((2,), "float32", 3)), **change}, "a file")
