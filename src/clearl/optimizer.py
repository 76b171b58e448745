"""Optimisers as the paper's sources used them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from clearl.config import RunConfig


class RmsProp(torch.optim.Optimizer):
    """TensorFlow's RMSProp, which IMPALA used: epsilon inside the square root, the mean square starting at one.

    PyTorch's has epsilon outside, which at 0.01 to 0.1 is another algorithm (pytorch#23796).
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        *,
        lr: float,
        decay: float = 0.99,
        eps: float = 0.01,
        momentum: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "eps": eps, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step for every parameter that has a gradient."""
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._step_one(param, param.grad, group)

    def _step_one(self, param: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[param]
        if not state:
            state["mean_square"] = torch.ones_like(param)
            state["momentum"] = torch.zeros_like(param)
        mean_square, velocity = state["mean_square"], state["momentum"]
        mean_square.mul_(group["decay"]).addcmul_(grad, grad, value=1 - group["decay"])
        root = (mean_square + group["eps"]).sqrt_()
        velocity.mul_(group["momentum"]).addcdiv_(grad, root, value=group["lr"])
        param.sub_(velocity)


def make_optimizer(config: RunConfig, params: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser that the config names."""
    if config.optimizer == "adam":
        return torch.optim.Adam(params, lr=config.learning_rate, eps=config.adam_eps, fused=True)
    return RmsProp(
        params,
        lr=config.learning_rate,
        decay=config.rmsprop_decay,
        eps=config.rmsprop_eps,
        momentum=config.rmsprop_momentum,
    )


def annealed_rate(config: RunConfig, frames: int, total_frames: int | None) -> float:
    """The learning rate after `frames`: linear to 0 over the whole run, never per visit, or constant."""
    if not config.anneal or total_frames is None:
        return config.learning_rate
    return config.learning_rate * max(0.0, 1.0 - frames / total_frames)
