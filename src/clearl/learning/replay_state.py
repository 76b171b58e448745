"""The recurrent state that replayed unrolls start from: as it was stored, zero, or warmed up by their own first steps.

A stored state is that of the network which acted then. R2D2 (Kapturowski et al. 2019) compares the three choices.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from clearl.config import RunConfig
from clearl.nets.network import PolicyNetwork, StepInput
from clearl.types import Batch

_PER_STEP = (
    "observation", "first", "last_action", "last_reward", "action", "reward", "discount", "valid", "behaviour_policy",
    "behaviour_value",
)  # fmt: skip


def with_replay_state(network: PolicyNetwork, batch: Batch, config: RunConfig) -> Batch:
    """Return the batch with the states that `replay_state` asks for; new unrolls keep theirs."""
    if config.replay_state == "zero":
        return replace(batch, core_state=batch.core_state.masked_fill(batch.is_replay[:, None], 0.0))
    if config.replay_state == "burn-in":
        return burnt_in(network, batch, config.burn_in_steps or max(1, config.unroll_steps // 4))
    return batch


def burnt_in(network: PolicyNetwork, batch: Batch, steps: int) -> Batch:
    """Spend the first `steps` of each replayed unroll on its state, without a gradient, and train on the others.

    Those move to the front. Behind them the last observation is repeated as steps whose action was ignored, and such a
    step ends a trace with its own value: the loss is that of an unroll which is so much shorter.
    """
    columns = batch.is_replay.nonzero().squeeze(1)
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    with torch.no_grad():
        state = network.unroll(inputs.map(lambda part: part[:steps, columns]), batch.core_state[columns]).state
    per_step = (*_PER_STEP, "mask") if batch.mask.dim() == 3 else _PER_STEP  # a mask of each state, or of the task
    moved = {name: _moved_up(getattr(batch, name), columns, steps) for name in per_step}
    moved["valid"][-steps:, columns] = False
    return replace(batch, core_state=batch.core_state.index_copy(0, columns, state), **moved)


def _moved_up(part: Tensor, columns: Tensor, steps: int) -> Tensor:
    """Shift some columns of [T, B, ...] by `steps` towards the start, their last entry repeated."""
    later = torch.cat([part[steps:, columns], part[-1:, columns].expand(steps, *part[0, columns].shape)])
    return part.index_copy(1, columns, later)
