"""Running statistics of vector observations and of returns, over the whole stream of new experience."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_LIMIT = 10.0
_LEAST_VARIANCE = 1e-4  # a number that hardly ever changes must not become large when it does


class RunningMoments(nn.Module):
    """Mean and variance of all values so far.

    They are buffers: they are published with the weights, are part of checkpoints and exports, and change only when the
    learner calls `observe`. They cover all tasks together.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        # In float64: the mean of 1e9 steps moves by less than float32 can hold.
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros(size, dtype=torch.float64))  # by number: some join a run later

    @torch.no_grad()
    def observe(self, values: Tensor) -> None:
        """Add more values [N, size], by the pairwise update of Chan et al."""
        if not len(values):
            return
        values = values.double()
        new, mean, variance = len(values), values.mean(0), values.var(0, unbiased=False)
        total = self.count + new
        gap, share = mean - self.mean, new / total
        before = torch.where(self.count > 0, self.variance, torch.zeros_like(self.variance))
        self.variance.copy_(before * (1 - share) + variance * share + gap.square() * share * (1 - share))
        self.mean.add_(gap * share)
        self.count.copy_(total)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take one count for all numbers too, as checkpoints held it before numbers could join later."""
        name = f"{prefix}count"
        if name in state_dict and state_dict[name].dim() == 0:
            state_dict[name] = state_dict[name].expand_as(self.count)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Normalise(RunningMoments):
    """(x - mean) / standard deviation, cut at 10. Unrolls hold what the environment gave."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._prepared: tuple[Tensor, Tensor] | None = None

    def prepare_acting(self) -> None:
        """Keep mean and scale as float32: for a few rows, computing them takes longer than using them."""
        self._prepared = self._mean_and_scale(torch.float32)

    def act(self, values: Tensor) -> Tensor:
        """Do what `forward` does, after `prepare_acting`."""
        assert self._prepared is not None
        mean, scale = self._prepared
        return ((values - mean) * scale).clamp_(-_LIMIT, _LIMIT)

    def forward(self, values: Tensor) -> Tensor:
        if self._prepared is not None and not torch.is_grad_enabled():
            return self.act(values)
        mean, scale = self._mean_and_scale(values.dtype)
        return ((values - mean) * scale).clamp(-_LIMIT, _LIMIT)

    def _mean_and_scale(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return self.mean.to(dtype), self.variance.clamp(min=_LEAST_VARIANCE).rsqrt().to(dtype)


class ReturnScale(RunningMoments):
    """The standard deviation of discounted returns: the unit in which values are learnt. Unrolls hold raw rewards."""

    def __init__(self) -> None:
        super().__init__(1)
        self._prepared: Tensor | None = None

    def prepare_acting(self) -> None:
        """Keep the unit: it changes with the weights only."""
        self._prepared = self._unit()

    @property
    def scale(self) -> Tensor:
        """The unit, a single float32; 1 before the first return, and never below 0.01."""
        return self._unit() if self._prepared is None else self._prepared

    def _unit(self) -> Tensor:
        return self.variance[0].clamp(min=_LEAST_VARIANCE).sqrt().float()
