"""Optimisers as the paper's sources used them."""

from __future__ import annotations

from collections.abc import Iterable

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
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads = [p.grad for p in params]
            for p in params:
                if not self.state[p]:
                    self.state[p] = {"mean_square": torch.ones_like(p), "momentum": torch.zeros_like(p)}
            mean_squares = [self.state[p]["mean_square"] for p in params]
            torch._foreach_mul_(mean_squares, group["decay"])
            torch._foreach_addcmul_(mean_squares, grads, grads, 1 - group["decay"])
            roots = torch._foreach_add(mean_squares, group["eps"])
            torch._foreach_sqrt_(roots)
            if group["momentum"] == 0:
                torch._foreach_addcdiv_(params, grads, roots, -group["lr"])
                continue
            velocities = [self.state[p]["momentum"] for p in params]
            torch._foreach_mul_(velocities, group["momentum"])
            torch._foreach_addcdiv_(velocities, grads, roots, group["lr"])
            torch._foreach_sub_(params, velocities)


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
