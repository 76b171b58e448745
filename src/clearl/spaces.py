"""The spaces of tasks: observations of named parts, and actions of choices and real numbers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, get_args

import numpy as np

from clearl.errors import CorruptFileError

PartDtype = Literal["uint8", "bool", "float32"]

_MOST_VALUES = 1 << 24  # of one observation; DMLab's has 20 thousand
_MOST_PARTS = 256


@dataclass(frozen=True)
class PartSpec:
    """One part of an observation."""

    shape: tuple[int, ...]
    """(C, H, W) for an image, (D,) for a vector."""
    dtype: PartDtype

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3


MASK_FIELD = "action mask"
"""The field of a record that holds the state's action mask; a part of that name gets another."""


def field_name(part: str) -> str:
    """Return the name of a part in a record, whose names must not be empty or that of the mask."""
    return f"{part}_" if part in ("", MASK_FIELD) else part


@dataclass(frozen=True)
class ObservationSpec:
    """The parts of an observation by name; a part that stands alone is called ""."""

    parts: dict[str, PartSpec]
    stack: int = 1
    """Successive frames in one observation. They are stored once and stacked on the way to the network."""
    mask_size: int = 0
    """Flags of the state's own action mask, stored with each frame; 0 where states allow all that a task has."""

    @cached_property
    def is_record(self) -> bool:
        """True if a frame is a record: of several parts, of one with a name, or with a mask."""
        return list(self.parts) != [""] or self.mask_size > 0

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of a stored frame; () for a record."""
        return () if self.is_record else self.parts[""].shape

    @cached_property
    def frame_dtype(self) -> np.dtype:
        """Dtype of a stored frame."""
        if self.is_record:
            return self._record({name: part.shape for name, part in self.parts.items()})
        return np.dtype(self.parts[""].dtype)

    @cached_property
    def record_dtype(self) -> np.dtype:
        """The dtype of a record as the network sees it, with its images stacked. Tensors hold its bytes."""
        return self._record(self.shapes)

    def stack_of(self, name: str) -> int:
        """Return how many frames of a part are stacked: of several parts, images only."""
        return self.stack if len(self.parts) == 1 or self.parts[name].is_image else 1

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each part as the network sees it: the stack is folded into the first axis."""
        return {name: (self.stack_of(name) * part.shape[0], *part.shape[1:]) for name, part in self.parts.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of one observation, with the frames of its stack."""
        return sum(math.prod(shape) * np.dtype(self.parts[name].dtype).itemsize for name, shape in self.shapes.items())

    def _record(self, shapes: dict[str, tuple[int, ...]]) -> np.dtype:
        fields = [(field_name(name), part.dtype, shapes[name]) for name, part in self.parts.items()]
        flags = [(MASK_FIELD, "bool", (self.mask_size,))] if self.mask_size else []
        return np.dtype([*fields, *flags], align=True)


@dataclass(frozen=True)
class ActionSpec:
    """An action: one of n for each of `choices`, then one real number for each of `bounded`.

    Real numbers are stored and sampled before squashing; where `bounded` is true the environment gets their tanh.
    """

    choices: tuple[int, ...] = ()
    bounded: tuple[bool, ...] = ()

    @staticmethod
    def discrete(count: int) -> ActionSpec:
        return ActionSpec((count,))

    @cached_property
    def options(self) -> tuple[slice, ...]:
        """The places of each choice's options among the flags of a mask, and among the numbers of a stored policy."""
        ends = (*accumulate(self.choices),)
        return tuple(slice(end - count, end) for count, end in zip(self.choices, ends, strict=True))

    @property
    def reals(self) -> int:
        """The number of real numbers in an action."""
        return len(self.bounded)

    @property
    def is_discrete(self) -> bool:
        """True if an action is a single choice, stored as one integer."""
        return len(self.choices) == 1 and not self.bounded

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one stored action: () for a single choice."""
        return () if self.is_discrete else (len(self.choices) + self.reals,)

    @property
    def dtype(self) -> str:
        """The dtype of a stored action.

        In a mixed one choices are floats, which hold whole numbers below 2**24 exactly.
        """
        return "float32" if self.bounded else "int64"

    @property
    def mask_size(self) -> int:
        """Flags that say what a task has of it: one for each option of each choice, then one for each real number."""
        return sum(self.choices) + self.reals

    @property
    def policy_size(self) -> int:
        """Numbers of a stored policy: one for each option, then two for each real number. Heads give them a meaning."""
        return sum(self.choices) + 2 * self.reals


@dataclass(frozen=True)
class TaskSpec:
    """The common spaces of a suite's tasks, once padded."""

    observation: ObservationSpec
    action: ActionSpec
    frames_per_step: int = 1
    """Environment frames that pass in one decision (the action repeat)."""

    def stacked(self, stack: int) -> TaskSpec:
        """Return the same spec with `stack` frames in one observation."""
        return replace(self, observation=replace(self.observation, stack=stack))


def discrete_spec(
    frame_shape: tuple[int, ...], frame_dtype: PartDtype, num_actions: int, stack: int = 1, frames_per_step: int = 1
) -> TaskSpec:
    """Return the spec of tasks with one array as observation and one choice as action."""
    observation = ObservationSpec({"": PartSpec(frame_shape, frame_dtype)}, stack)
    return TaskSpec(observation, ActionSpec.discrete(num_actions), frames_per_step)


def spec_to_json(spec: TaskSpec) -> dict[str, Any]:
    """Convert a spec to the JSON that `spec_from_json` reads."""
    return asdict(spec)


def spec_from_json(values: Any, source: str) -> TaskSpec:
    """Return the `TaskSpec` in a file, or `CorruptFileError` if no environment of ours can be so."""
    try:
        spec = _from_version_1(values) if "frame_shape" in values else _from_json(values)
        _check(spec)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise CorruptFileError(f"{source}: not the observations and actions of an environment ({error})") from None
    return spec


def _from_version_1(values: Any) -> TaskSpec:
    """Read a spec of version 0.1: one array and one choice, flat."""
    return discrete_spec(**{**values, "frame_shape": tuple(values["frame_shape"])})


def _from_json(values: Any) -> TaskSpec:
    observation, action = values["observation"], values["action"]
    parts = {name: PartSpec(tuple(part["shape"]), part["dtype"]) for name, part in observation["parts"].items()}
    bounded = {**action, "choices": tuple(action["choices"]), "bounded": tuple(action["bounded"])}
    shown = ObservationSpec(parts, observation["stack"], observation["mask_size"])
    return TaskSpec(**{**values, "observation": shown, "action": ActionSpec(**bounded)})


def _check(spec: TaskSpec) -> None:
    parts, action = spec.observation.parts, spec.action
    sizes = [size for part in parts.values() for size in part.shape]
    sizes += [*action.choices, spec.observation.stack, spec.frames_per_step, action.mask_size]
    known = all(part.dtype in get_args(PartDtype) and 1 <= len(part.shape) <= 3 for part in parts.values())
    flags = all(type(flag) is bool for flag in action.bounded)
    if not known or not flags or any(type(size) is not int or not 1 <= size <= 1_000_000 for size in sizes):
        raise ValueError("a size or type is out of range")
    if spec.observation.mask_size not in (0, action.mask_size):
        raise ValueError("the mask of a state does not fit the actions")
    if not 1 <= len(parts) <= _MOST_PARTS or len(action.choices) > 1_000_000:
        raise ValueError(f"an observation has {len(parts)} parts")
    if sum(math.prod(shape) for shape in spec.observation.shapes.values()) > _MOST_VALUES:
        raise ValueError(f"an observation has more than {_MOST_VALUES} values")
