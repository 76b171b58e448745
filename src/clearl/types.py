"""Types that layers share besides unrolls: an environment's step, the position in the plan, the learner's batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class EnvStep:
    """The results of n actions in a batch of n environments.

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
    success: np.ndarray | None = None
    """[n] bool: whether the episode that made this step has succeeded by now; None where nothing reports success."""


@dataclass(frozen=True)
class Visit:
    """The position of training in the plan. Given only to methods that declare `needs_boundaries`."""

    index: int
    tasks: tuple[str, ...]
    frames: int
    start_frames: int
    end_frames: int | None
    """None where the visit ends by episodes."""
    extra_frames: int = 0
    """Frames at the visit's end on top of its own, because the method asked for them."""


@dataclass(frozen=True)
class Batch:
    """A batch of the learner: time-major tensors, new and replay side by side."""

    observation: torch.Tensor  # [T+1, B, *observation_shape]
    first: torch.Tensor  # [T+1, B] bool
    last_action: torch.Tensor  # [T+1, B, *action_shape]
    last_reward: torch.Tensor  # [T+1, B] clipped
    core_state: torch.Tensor  # [B, S]
    action: torch.Tensor  # [T, B, *action_shape]
    reward: torch.Tensor  # [T, B] clipped
    discount: torch.Tensor  # [T, B]: gamma, or 0 where the episode terminated
    valid: torch.Tensor  # [T, B] bool
    mask: torch.Tensor  # [B, mask_size] bool: what the task allows; [T, B, mask_size] where states say
    behaviour_policy: torch.Tensor  # [T, B, policy_size]
    behaviour_value: torch.Tensor  # [T, B]
    is_replay: torch.Tensor  # [B] bool; a wrapper may hand its base weights of cloning above 0 instead

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(vars(self).values())
