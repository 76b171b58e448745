"""The seam of networks: act on one step, or unroll over T+1 steps, with the same result."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import nn


class StepInput(NamedTuple):
    """What a network sees; leading axes [B] for one step or [T, B] for an unroll."""

    observation: torch.Tensor  # [..., *observation_shape] uint8, bool or float32
    last_action: torch.Tensor  # [...] int64
    last_reward: torch.Tensor  # [...] float32, clipped
    first: torch.Tensor  # [...] bool: the recurrent state is reset before this step


class StepOutput(NamedTuple):
    logits: torch.Tensor  # [..., A], unmasked
    value: torch.Tensor  # [...]
    state: torch.Tensor  # [B, core_size]


class PolicyNetwork(Protocol):
    """A policy and a value over a shared torso. Implementations are `nn.Module`s."""

    core_size: int
    """Floats of recurrent state a slot carries; 0 without a memory."""

    def act(self, inputs: StepInput, state: torch.Tensor, *, column: str = "act") -> StepOutput:
        """One step: inputs [B, ...], state [B, core_size]. `column` is "act" or "evaluate"."""
        ...

    def unroll(self, inputs: StepInput, state: torch.Tensor) -> StepOutput:
        """T steps: inputs [T, B, ...], state [B, core_size] before the first."""
        ...

    def evaluated_column(self) -> str:
        """A name for the metrics row of what `column="evaluate"` runs now; "" where there is only one network."""
        ...


def as_module(network: PolicyNetwork) -> nn.Module:
    """The network as the `nn.Module` that it is."""
    assert isinstance(network, nn.Module)
    return network
