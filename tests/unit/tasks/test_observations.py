"""Observation spaces: parts by name, padded over tasks, written with every fault named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from clearl.errors import ConfigError, CorruptFileError
from clearl.spaces import PartSpec, field_name
from clearl.tasks.observations import (
    TaskObservations,
    common_observation,
    describe_observations,
    observations_from_json,
)
from clearl.tasks.writing import ObservationWriter

ROBOT = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (8, 9, 3), np.uint8),
        "arm": spaces.Dict({"joints": spaces.Box(-1, 1, (4,), np.float64), "grip": spaces.MultiBinary(2)}),
        "goal": spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 4]))),
    }
)


def observations_of(space: Any) -> TaskObservations:
    """Through JSON, as in an exported agent."""
    return observations_from_json(json.loads(json.dumps(describe_observations("task", space))), "a file")


def written(space: Any, observation: Any) -> tuple[np.ndarray, str | None]:
    observations = observations_of(space)
    spec = common_observation({"task": observations}, stack=1)
    frames = np.zeros((1, *spec.frame_shape), spec.frame_dtype)
    return frames[0], ObservationWriter(observations, spec).write(observation, frames[0])


def test_nested_parts_have_names_and_kinds() -> None:
    spec = common_observation({"task": observations_of(ROBOT)}, stack=2)
    assert spec.parts == {
        "arm/grip": PartSpec((2,), "bool"),
        "arm/joints": PartSpec((4,), "float32"),
        "camera": PartSpec((3, 8, 9), "uint8"),
        "goal/0": PartSpec((3,), "bool"),
        "goal/1": PartSpec((6,), "bool"),
    }
    assert spec.shapes["camera"] == (6, 8, 9) and spec.shapes["arm/joints"] == (4,)


def test_parts_are_written_where_they_belong() -> None:
    observation = {
        "camera": np.arange(8 * 9 * 3, dtype=np.uint8).reshape(8, 9, 3),
        "arm": {"joints": np.array([0.1, 0.2, 0.3, 0.4]), "grip": np.array([1, 0], np.int8)},
        "goal": (np.int64(3), np.array([1, 2])),
    }
    frame, problem = written(ROBOT, observation)
    assert problem is None
    np.testing.assert_array_equal(frame["camera"], np.moveaxis(observation["camera"], -1, 0))
    np.testing.assert_allclose(frame["arm/joints"], [0.1, 0.2, 0.3, 0.4], rtol=1e-6)
    assert frame["arm/grip"].tolist() == [True, False]
    assert frame["goal/0"].tolist() == [False, False, True]
    assert frame["goal/1"].tolist() == [False, True, False, False, True, False]


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.Box(0, 1, ()), (1,)),
        (spaces.Box(0, 1, (7,)), (7,)),
        (spaces.Box(0, 255, (10, 12), np.uint8), (1, 10, 12)),
        (spaces.Box(0, 255, (3, 10, 12), np.uint8), (3, 10, 12)),
        (spaces.Box(0, 255, (10, 12, 4), np.uint8), (4, 10, 12)),
        (spaces.Box(0, 1, (2, 3, 4, 5)), (120,)),
        (spaces.Discrete(5), (5,)),
        (spaces.MultiBinary((2, 3)), (6,)),
    ],
    ids=str,
)
def test_every_rank_and_kind_becomes_an_image_or_a_vector(space: Any, shape: tuple[int, ...]) -> None:
    frame, problem = written(space, space.sample())
    assert problem is None and frame.shape == shape


@pytest.mark.parametrize(
    ("space", "observation", "problem"),
    [
        (ROBOT, {"camera": 0}, "part 'arm/grip' .* missing .*; every observation needs all parts"),
        (
            spaces.Dict(a=spaces.Box(0, 1, (2,))),
            {"a": np.zeros(3)},
            r"part 'a' has shape \(3,\) instead of \(2,\); reshape it",
        ),
        (spaces.Dict(a=spaces.Box(0, 1, (2,))), {"a": np.zeros((1, 2))}, r"\(1, 2\) .*; leave out the batch axis"),
        (spaces.Dict(a=spaces.Box(0, 1, (2,))), {"a": np.array([0, np.nan])}, "part 'a' holds NaN or .*np.nan_to_num"),
        (spaces.Box(0, 1, (1,)), np.array([1e300]), r"beyond float32; mend the cause, or .*np.clip"),
        (spaces.Box(0, 255, (2, 2), np.uint8), np.full((2, 2), 0.5), "dtype float64 instead of uint8; convert it, or"),
        (spaces.Discrete(3), 3, "is 3, outside of its space; mend it, or correct observation_space"),
        (spaces.Discrete(3), 0.5, "instead of whole numbers; round it"),
        (spaces.MultiBinary(2), np.array([0, 2]), "something else than 0 and 1; make it flags, or correct"),
        (spaces.Box(0, 1, (2,)), [[1], [1, 2]], "no array"),
    ],
)
def test_what_leaves_its_space_is_named_with_its_part(space: Any, observation: Any, problem: str) -> None:
    _, found = written(space, observation)
    assert found is not None
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(found)


def test_parts_of_several_tasks_are_padded_and_missing_ones_stay_zero() -> None:
    tasks = {
        "small": observations_of(spaces.Dict(eye=spaces.Box(0, 255, (4, 4, 1), np.uint8))),
        "large": observations_of(spaces.Dict(eye=spaces.Box(0, 1, (6, 5, 3)), ear=spaces.Discrete(2))),
    }
    spec = common_observation(tasks, stack=1)
    assert spec.parts == {"eye": PartSpec((3, 6, 5), "float32"), "ear": PartSpec((2,), "bool")}
    frames = np.zeros(1, spec.frame_dtype)
    image = np.full((4, 4, 1), 255, np.uint8)
    assert ObservationWriter(tasks["small"], spec).write({"eye": image}, frames[0]) is None
    assert frames["eye"][0, 0, :4, :4].min() == pytest.approx(1) and frames["eye"][0].sum() == pytest.approx(16)
    assert not frames["ear"].any()


def test_parts_of_unlike_kinds_are_refused_with_their_name() -> None:
    tasks = {
        "a": observations_of(spaces.Dict(eye=spaces.Box(0, 1, (4,)))),
        "b": observations_of(spaces.Dict(eye=spaces.Box(0, 1, (4, 4)))),
    }
    with pytest.raises(ConfigError, match=r"images and vectors cannot share one network in part 'eye': a \(4,\), b"):
        common_observation(tasks, stack=1)


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        (spaces.Text(3), "Text observations.*FlattenObservation"),
        (spaces.Dict(a=spaces.Sequence(spaces.Discrete(2))), "Sequence observations"),
        (spaces.Dict({"": spaces.Discrete(2)}), "a part without a name"),
        (spaces.Dict({"a/b": spaces.Box(0, 1, (2,)), "a": spaces.Dict({"b": spaces.Box(0, 1, (3,))})}), "called 'a/b'"),
        (spaces.Dict({"a/0": spaces.Discrete(2), "a": spaces.Tuple((spaces.Discrete(2),))}), "both called 'a/0'"),
        (spaces.Dict({0: spaces.Discrete(2)}), "a part called 0 .*no text"),  # pyright: ignore[reportArgumentType]  # the fault
        (spaces.Box(0, 1, (0,)), "empty part"),
        (spaces.Tuple(()), "an empty Tuple"),
        (spaces.Discrete(10**6), "1_000_000 options, more than 65_536"),
    ],
    ids=str,
)
def test_what_cannot_be_shown_is_refused(space: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"task has.*{problem}"):
        describe_observations("task", space)


@pytest.mark.parametrize("description", [None, {}, {"kind": "box", "shape": [2], "dtype": "object"}], ids=str)
def test_a_damaged_description_is_refused(description: Any) -> None:
    with pytest.raises(CorruptFileError, match="a file: not the observations of a task"):
        observations_from_json(description, "a file")


def test_batches_are_taken_apart() -> None:
    observations = observations_of(ROBOT)
    many = {
        "camera": np.zeros((5, 8, 9, 3), np.uint8),
        "arm": {"joints": np.arange(20.0).reshape(5, 4), "grip": np.zeros((5, 2), np.int8)},
        "goal": (np.ones(5, np.int64), np.zeros((5, 2), np.int64)),
    }
    assert observations.is_batch(many) and observations.count(many) == 5
    assert observations.member(many, 2)["arm"]["joints"].tolist() == [8, 9, 10, 11]
    assert not observations.is_batch(observations.member(many, 2))


def test_names_that_a_record_cannot_have_are_changed() -> None:
    assert len({field_name(""), field_name("action mask"), field_name("a")}) == 3


def _two_vectors() -> tuple[ObservationWriter, np.dtype]:
    space = spaces.Dict({name: spaces.Box(-np.inf, np.inf, (size,), np.float32) for name, size in (("a", 2), ("b", 3))})
    observations = TaskObservations(describe_observations("T", space))
    spec = common_observation({"T": observations}, stack=1)
    return ObservationWriter(observations, spec), spec.frame_dtype


def test_rows_of_a_batch_are_what_each_observation_alone_is() -> None:
    writer, dtype = _two_vectors()
    rows, frames, alone = writer.rows(), np.zeros(3, dtype), np.zeros(3, dtype)
    reused = {"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float64)}
    for kinds in (("f4", "f4"), ("f8", "f8"), ("f4", "f8"), ("i8", "f4")):
        for slot in range(3):
            reused["a"], reused["b"] = np.full(2, slot + 1, kinds[0]), np.full(3, slot + 0.1, kinds[1])
            assert rows.put(slot, reused, frames[slot]) is None
            assert writer.write(reused, alone[slot]) is None
            reused["b"][:] = 7  # an environment may write into its own arrays later
        assert rows.finish(frames) == {}
        np.testing.assert_array_equal(frames, alone)


def test_a_batch_holds_observations_of_several_dtypes_and_memory_layouts() -> None:
    writer, dtype = _two_vectors()
    rows, frames, alone = writer.rows(), np.zeros(4, dtype), np.zeros(4, dtype)
    numbers = np.arange(24.0).reshape(4, 6) / 7
    singles, columns = numbers.astype("f4"), np.asfortranarray(numbers)
    for slot, source in enumerate((numbers, singles, columns, singles[:, ::-1])):
        shown = {"a": source[slot, :2], "b": source[slot, 2:5]}
        assert rows.put(slot, shown, frames[slot]) is None
        assert writer.write(shown, alone[slot]) is None
    assert rows.finish(frames) == {}
    np.testing.assert_array_equal(frames, alone)


def test_a_batch_forgets_the_observation_of_a_failed_step() -> None:
    writer, dtype = _two_vectors()
    rows, frames = writer.rows(), np.zeros(3, dtype)
    for slot in range(3):
        rows.put(slot, {"a": np.ones(2), "b": np.ones(3)}, frames[slot])
        if slot == 1:
            rows.drop(slot)
    assert rows.finish(frames) == {}
    assert frames["a"][:, 0].tolist() == [1, 0, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_a_batch_names_the_part_and_the_environment_of_numbers_that_are_not_finite(bad: float) -> None:
    writer, dtype = _two_vectors()
    rows, frames = writer.rows(), np.zeros(3, dtype)
    for slot in range(3):
        shown = {"a": np.ones(2), "b": np.array([1.0, bad if slot == 1 else 1.0, 1.0])}
        assert rows.put(slot, shown, frames[slot]) is None
    problem = "the observation's part 'b' holds NaN or infinity, or a number beyond float32"
    (found,) = rows.finish(frames).items()
    assert found[0] == 1 and found[1].startswith(problem)
    assert frames["b"][:, 0].tolist() == [1, 0, 1]


def test_a_batch_refuses_parts_whose_sizes_fit_only_together() -> None:
    writer, dtype = _two_vectors()
    frames = np.zeros(1, dtype)
    problem = writer.rows().put(0, {"a": np.ones(3, np.float32), "b": np.ones(2, np.float32)}, frames[0])
    assert problem is not None and problem.startswith("the observation's part 'a' has shape (3,) instead of (2,)")
