"""Rewards and stored values in units of the running deviation of discounted returns.

The deviation is the network's (`clearl.nets.normalise.ReturnScale`); unrolls, and with them replay, hold rewards and
values as the environment gives rewards. A batch is divided on its way to the losses, by the deviation of the moment, so
that value cloning compares a value of today with one of long ago in one unit.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from clearl.nets.network import PolicyNetwork, ScalesReturns
from clearl.types import Batch


def scaled_by_returns(network: PolicyNetwork, batch: Batch) -> Batch:
    """Add the returns of new unrolls to the statistics, then divide the batch by their deviation so far."""
    assert isinstance(network, ScalesReturns)
    returns = discounted_returns(batch)[batch.valid & ~batch.is_replay]
    network.observe_returns(returns[torch.isfinite(returns)])  # one bad number would stay in the statistics for ever
    scale = network.return_scale()
    return replace(batch, reward=batch.reward / scale, behaviour_value=batch.behaviour_value / scale)


def discounted_returns(batch: Batch) -> Tensor:
    """Return G_t = r_t + gamma_t G_{t+1}, [T, B], with the acting network's value at the end of an unroll.

    An unroll has no value of o_T, so that of o_{T-1} is used. A step whose action was ignored has its value as return.
    """
    following, returns = batch.behaviour_value[-1], []
    for reward, discount, valid, value in zip(
        batch.reward.flip(0), batch.discount.flip(0), batch.valid.flip(0), batch.behaviour_value.flip(0), strict=True
    ):
        following = torch.where(valid, reward + discount * following, value)
        returns.append(following)
    return torch.stack(returns[::-1])
