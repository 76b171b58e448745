"""The words that every layer speaks: what an environment looks like, what an unroll holds, what a batch is.

Time convention. An unroll of T steps holds T+1 observations o_0..o_T and T actions a_0..a_{T-1}; r_t, terminated_t and
valid_t belong to action a_t, which was chosen at o_t. Everything the network said about o_t (logits_t, value_t) carries
the index t as well, so that a cloning target is compared with the network at the very same observation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from clearl.errors import CorruptFileError

if TYPE_CHECKING:
    import torch

FrameDtype = Literal["uint8", "bool", "float32"]

Rows = dict[str, np.ndarray]
"""Unrolls of several slots as one array per field, slot axis first."""


Payload = bytes | memoryview
"""One unroll as replay keeps it: packed by `clearl.replay.codec`."""


@dataclass(frozen=True)
class EnvSpec:
    """What the environments of a suite have in common once padded: one frame, how many are stacked, the actions."""

    frame_shape: tuple[int, ...]
    """(C, H, W) for images, (D,) for flat observations."""
    frame_dtype: FrameDtype
    num_actions: int
    stack: int = 1
    """How many successive frames make one observation; they are stored once and stacked on the way to the network."""
    frames_per_step: int = 1
    """Environment frames that pass in one decision (the action repeat)."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of what the network sees: the stack is folded into the first axis."""
        return (self.stack * self.frame_shape[0], *self.frame_shape[1:])


_MOST_VALUES = 1 << 24  # of one observation; DMLab's has 20 thousand


def spec_from_json(values: Any, source: str) -> EnvSpec:
    """The `EnvSpec` that a file says, or `CorruptFileError` if no environment of ours can be so."""
    try:
        spec = EnvSpec(**{**values, "frame_shape": tuple(values["frame_shape"])})
        sizes = (*spec.frame_shape, spec.num_actions, spec.stack, spec.frames_per_step)
        known = spec.frame_dtype in get_args(FrameDtype) and 1 <= len(spec.frame_shape) <= 4
        if not known or any(type(size) is not int or not 1 <= size <= 1_000_000 for size in sizes):
            raise ValueError("a size or type is out of range")
        if math.prod(spec.observation_shape) > _MOST_VALUES:
            raise ValueError(f"an observation has more than {_MOST_VALUES} values")
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptFileError(f"{source}: not the observations and actions of an environment ({error})") from None
    return spec


@dataclass(frozen=True)
class Field:
    """One array of an unroll."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class UnrollLayout:
    """Names, shapes and dtypes of everything an unroll holds; shared by replay, shared memory and wire."""

    spec: EnvSpec
    unroll_steps: int
    core_size: int = 0
    """Floats of recurrent state at the start of the unroll; 0 for a feed-forward network."""

    @property
    def frames(self) -> int:
        """Environment frames that one unroll stands for."""
        return self.unroll_steps * self.spec.frames_per_step

    @property
    def fields(self) -> dict[str, Field]:
        steps, actions, stack = self.unroll_steps, self.spec.num_actions, self.spec.stack
        return {
            # stack-1 frames of context before o_0, then o_0..o_T; `first` marks the first frame of an episode.
            "frames": Field((steps + stack, *self.spec.frame_shape), self.spec.frame_dtype),
            "first": Field((steps + stack,), "bool"),
            "action": Field((steps,), "int64"),
            "reward": Field((steps,), "float32"),  # as the environment gave it; clipped by the learner
            "terminated": Field((steps,), "bool"),
            "valid": Field((steps,), "bool"),  # False where an autoreset ignored the action
            "logits": Field((steps, actions), "float32"),  # of the acting network, before the mask
            "value": Field((steps,), "float32"),  # of the acting network
            "mask": Field((actions,), "bool"),  # which actions the task has
            "last_action": Field((), "int64"),  # before o_0
            "last_reward": Field((), "float32"),
            "core_state": Field((self.core_size,), "float32"),  # before o_0
        }

    @property
    def nbytes(self) -> int:
        """Bytes of one unroll, uncompressed."""
        return sum(field.nbytes for field in self.fields.values())

    def empty(self, rows: int) -> Rows:
        """Zeroed arrays for `rows` unrolls."""
        return {name: np.zeros((rows, *f.shape), f.dtype) for name, f in self.fields.items()}

    def views(self, buffer: memoryview | bytearray, rows: int) -> Rows:
        """The same arrays as views into `buffer`, which holds `rows * nbytes` bytes or more (padded to 64)."""
        views, offset = {}, 0
        for name, field in self.fields.items():
            count = rows * int(np.prod(field.shape, dtype=np.int64))
            array = np.frombuffer(buffer, field.dtype, count, offset)
            views[name] = array.reshape((rows, *field.shape))
            offset += -(-array.nbytes // 64) * 64
        return views

    def buffer_nbytes(self, rows: int) -> int:
        """Bytes that `views` needs for `rows` unrolls."""
        return sum(-(-(rows * f.nbytes) // 64) * 64 for f in self.fields.values())


def row(rows: Mapping[str, np.ndarray], index: int) -> Rows:
    """One unroll of several, as views."""
    return {name: array[index] for name, array in rows.items()}


@dataclass(frozen=True)
class EnvStep:
    """What a batch of n environments answers to n actions.

    Termination resets in the same step: `frames` is then the first frame of the next episode. Truncation does not:
    `frames` is the last frame of the episode, whose value the learner bootstraps from; the next action is ignored
    (`valid` False) and answered by the first frame of the next episode. A vector environment that treats both in the
    second way is fine too.
    """

    frames: np.ndarray  # [n, *frame_shape]
    reward: np.ndarray  # [n] float32, unclipped
    terminated: np.ndarray  # [n] bool
    truncated: np.ndarray  # [n] bool
    valid: np.ndarray  # [n] bool
    first: np.ndarray  # [n] bool: frames[i] opens an episode


@dataclass(frozen=True)
class Visit:
    """Where training stands in the plan. Given only to methods that declare `needs_boundaries`."""

    index: int
    tasks: tuple[str, ...]
    frames: int
    start_frames: int
    end_frames: int | None
    """None where the visit ends by episodes."""


@dataclass(frozen=True)
class Batch:
    """What the learner trains on: time-major tensors, new and replay side by side."""

    observation: torch.Tensor  # [T+1, B, *observation_shape]
    first: torch.Tensor  # [T+1, B] bool
    last_action: torch.Tensor  # [T+1, B] int64
    last_reward: torch.Tensor  # [T+1, B] clipped
    core_state: torch.Tensor  # [B, S]
    action: torch.Tensor  # [T, B] int64
    reward: torch.Tensor  # [T, B] clipped
    discount: torch.Tensor  # [T, B]: gamma, or 0 where the episode terminated
    valid: torch.Tensor  # [T, B] bool
    mask: torch.Tensor  # [B, A] bool
    behaviour_logits: torch.Tensor  # [T, B, A]
    behaviour_value: torch.Tensor  # [T, B]
    is_replay: torch.Tensor  # [B] bool

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(vars(self).values())
