"""An unroll: T steps of one slot with everything that V-trace and cloning need; what crosses every arrow.

Time convention. An unroll of T steps holds T+1 observations o_0..o_T and T actions a_0..a_{T-1}; r_t, terminated_t and
valid_t belong to action a_t, which was chosen at o_t. Everything the network said about o_t (policy_t, value_t) carries
the index t as well, so that a cloning target is compared with the network at the very same observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from clearl.spaces import TaskSpec

Payload = bytes | memoryview
"""One unroll as replay keeps it: packed by `clearl.replay.codec`."""


@dataclass(frozen=True)
class Unroll:
    """The arrays of one unroll, or of several with a slot axis first."""

    frames: np.ndarray  # [T+stack, *frame_shape]: stack-1 frames of context before o_0, then o_0..o_T
    first: np.ndarray  # [T+stack] bool: the frame opens an episode
    action: np.ndarray  # [T, *action_shape]
    reward: np.ndarray  # [T] float32, as the environment gave it; clipped by the learner
    terminated: np.ndarray  # [T] bool
    valid: np.ndarray  # [T] bool: False where an autoreset ignored the action
    policy: np.ndarray  # [T, policy_size] float32, of the acting network, before the mask
    value: np.ndarray  # [T] float32, of the acting network
    mask: np.ndarray  # [mask_size] bool: what the task has of the action spec
    last_action: np.ndarray  # [*action_shape], before o_0
    last_reward: np.ndarray  # float32, before o_0
    core_state: np.ndarray  # [core_size] float32, before o_0

    def named(self) -> dict[str, np.ndarray]:
        """Return the arrays by the names of their fields, for what stores or copies them all alike."""
        return vars(self)

    def __getitem__(self, index: Any) -> Unroll:
        """Return some of the slots, or one, as views."""
        return Unroll(**{name: array[index] for name, array in vars(self).items()})


FIELD_NAMES = tuple(field.name for field in fields(Unroll))


def from_named(arrays: Mapping[str, np.ndarray]) -> Unroll:
    """Return the unroll in a checkpoint; version 0.1 called its policies logits."""
    renamed = {**arrays, "policy": arrays["logits"]} if "logits" in arrays else arrays
    return Unroll(**{name: renamed[name] for name in FIELD_NAMES})


def as_plain(array: np.ndarray) -> np.ndarray:
    """Convert for a checkpoint: records to their bytes [..., nbytes], everything else as it is."""
    if array.dtype.names is None:
        return array
    return np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.dtype.itemsize)


def from_plain(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Undo `as_plain`."""
    return array if dtype.names is None else np.ascontiguousarray(array).view(dtype)[..., 0]


@dataclass(frozen=True)
class Field:
    """Shape and dtype of one array of an unroll."""

    shape: tuple[int, ...]
    dtype: npt.DTypeLike

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class UnrollLayout:
    """Names, shapes and dtypes of everything an unroll holds; shared by replay, shared memory and wire."""

    spec: TaskSpec
    unroll_steps: int
    core_size: int = 0
    """Floats of recurrent state at the start of the unroll; 0 for a feed-forward network."""

    @property
    def frames(self) -> int:
        """Environment frames that one unroll stands for."""
        return self.unroll_steps * self.spec.frames_per_step

    @property
    def fields(self) -> dict[str, Field]:
        """The fields by name, in the order in which they are stored."""
        steps, observation, action = self.unroll_steps, self.spec.observation, self.spec.action
        shown = steps + observation.stack
        return {
            "frames": Field((shown, *observation.frame_shape), observation.frame_dtype),
            "first": Field((shown,), "bool"),
            "action": Field((steps, *action.shape), action.dtype),
            "reward": Field((steps,), "float32"),
            "terminated": Field((steps,), "bool"),
            "valid": Field((steps,), "bool"),
            "policy": Field((steps, action.policy_size), "float32"),
            "value": Field((steps,), "float32"),
            "mask": Field((action.mask_size,), "bool"),
            "last_action": Field(action.shape, action.dtype),
            "last_reward": Field((), "float32"),
            "core_state": Field((self.core_size,), "float32"),
        }

    @property
    def nbytes(self) -> int:
        """Bytes of one unroll, uncompressed."""
        return sum(field.nbytes for field in self.fields.values())

    def empty(self, slots: int) -> Unroll:
        """Make zeroed arrays for one unroll of each of `slots`."""
        return Unroll(**{name: np.zeros((slots, *f.shape), f.dtype) for name, f in self.fields.items()})

    def views(self, buffer: memoryview | bytearray, slots: int) -> Unroll:
        """Return the same arrays as views into `buffer`, which holds `buffer_nbytes(slots)` or more."""
        views, offset = {}, 0
        for name, field in self.fields.items():
            count = slots * int(np.prod(field.shape, dtype=np.int64))
            array = np.frombuffer(buffer, field.dtype, count, offset)
            views[name] = array.reshape((slots, *field.shape))
            offset += -(-array.nbytes // 64) * 64
        return Unroll(**views)

    def buffer_nbytes(self, slots: int) -> int:
        """Return the bytes that `views` needs; every array is padded to 64."""
        return sum(-(-(slots * f.nbytes) // 64) * 64 for f in self.fields.values())
