"""Optimisers as the paper's sources used them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim.adam import adam

from clearl.config import RunConfig

State = dict[str, torch.Tensor]

_BETA_1, _BETA_2 = 0.9, 0.999


class Optimizer(ABC):
    """Moves parameters by their gradients, those that have one.

    Not a `torch.optim.Optimizer`: the first of those imports torch's compiler, which takes more than a second.
    """

    def __init__(self, params: Iterable[torch.nn.Parameter], *, lr: float) -> None:
        self.params, self.lr = list(params), lr
        self._states: list[State] = [{} for _ in self.params]

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for param in self.params:
            param.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Make one step with the present `lr`."""
        moved = [
            (param, state) for param, state in zip(self.params, self._states, strict=True) if param.grad is not None
        ]
        for param, state in moved:
            if not state:
                state.update(self._initial(param))
        self._move(moved)

    def reset(self, param: torch.Tensor, index: Any = None) -> None:
        """Reset the state of a parameter, or of `param[index]` only, to what it is before the first step.

        For code that gives a parameter new values: moments of the old ones would drive the new ones for a while.
        `index` is anything that indexes a tensor: `3` or a list of rows for units, `(slice(None), columns)` for inputs.
        """
        state = self._state_of(param)
        if index is None:
            state.clear()
        elif state:
            self._reset_part(param, state, index)

    def initial(self, index: int) -> State:
        """Return the state of a parameter, by its place among all, before its first step."""
        return self._initial(self.params[index].detach())

    def tensors(self) -> State:
        """Return the whole state, named `index of the parameter/name`."""
        return {f"{i}/{name}": tensor for i, state in enumerate(self._states) for name, tensor in state.items()}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore `tensors`."""
        states: list[State] = [{} for _ in self.params]
        for name, tensor in tensors.items():
            index, _, key = name.partition("/")
            states[int(index)][key] = tensor.clone()
        for param, state in zip(self.params, states, strict=True):
            if state and not self._fits(param, state):
                raise ValueError("the state of the optimiser does not fit the parameters")
        self._states = states

    def _state_of(self, param: torch.Tensor) -> State:
        for known, state in zip(self.params, self._states, strict=True):
            if known is param:
                return state
        raise ValueError("not a parameter of this optimiser")

    def _reset_part(self, param: torch.Tensor, state: State, index: Any) -> None:
        for name, initial in self._initial(param).items():
            state[name][index] = initial[index]

    def _fits(self, param: torch.Tensor, state: State) -> bool:
        shapes = {name: tensor.shape for name, tensor in self._initial(param).items()}
        return {name: tensor.shape for name, tensor in state.items()} == shapes

    @abstractmethod
    def _initial(self, param: torch.Tensor) -> State:
        """Return the state of a parameter before its first step."""

    @abstractmethod
    def _move(self, moved: list[tuple[torch.nn.Parameter, State]]) -> None:
        """Make one step for each of these parameters, all of which have a gradient."""


class Adam(Optimizer):
    """PyTorch's own step, in one kernel; parameters of which a part was reset count steps for each element."""

    def __init__(self, params: Iterable[torch.nn.Parameter], *, lr: float, eps: float) -> None:
        super().__init__(params, lr=lr)
        self.eps = eps

    def _initial(self, param: torch.Tensor) -> State:
        step = torch.zeros((), dtype=torch.float32, device=param.device)
        return {"step": step, "exp_avg": torch.zeros_like(param), "exp_avg_sq": torch.zeros_like(param)}

    def _reset_part(self, param: torch.Tensor, state: State, index: Any) -> None:
        # The bias corrections of a part that starts again are those of its own age: with the old count, its first
        # steps would be three times too long, (1 - 0.9) / sqrt(1 - 0.999).
        state["step"] = state["step"].expand(param.shape).clone()
        for tensor in state.values():
            tensor[index] = 0.0

    def _fits(self, param: torch.Tensor, state: State) -> bool:
        by_element = "step" in state and state["step"].shape == param.shape
        return super()._fits(param, state | {"step": param.new_zeros(())} if by_element else state)

    def _move(self, moved: list[tuple[torch.nn.Parameter, State]]) -> None:
        whole = [(param, state) for param, state in moved if state["step"].dim() == 0]
        for param, state in moved:
            if state["step"].dim():
                self._move_by_element(param, state)
        if not whole:
            return
        params, states = zip(*whole, strict=True)
        first, second, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        adam(
            list(params), [param.grad for param in params], first, second, [], steps, fused=True, amsgrad=False,
            beta1=_BETA_1, beta2=_BETA_2, lr=self.lr, weight_decay=0.0, eps=self.eps, maximize=False,
        )  # fmt: skip

    def _move_by_element(self, param: torch.nn.Parameter, state: State) -> None:
        assert param.grad is not None
        step, first, second = state["step"].add_(1), state["exp_avg"], state["exp_avg_sq"]
        first.lerp_(param.grad, 1 - _BETA_1)
        second.mul_(_BETA_2).addcmul_(param.grad, param.grad, value=1 - _BETA_2)
        root = (second / (1 - _BETA_2**step)).sqrt_().add_(self.eps)
        param.addcdiv_(first / (1 - _BETA_1**step), root, value=-self.lr)


class RmsProp(Optimizer):
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
        super().__init__(params, lr=lr)
        self.decay, self.eps, self.momentum = decay, eps, momentum

    def _initial(self, param: torch.Tensor) -> State:
        return {"mean_square": torch.ones_like(param), "momentum": torch.zeros_like(param)}

    def _move(self, moved: list[tuple[torch.nn.Parameter, State]]) -> None:
        for param, state in moved:
            assert param.grad is not None
            mean_square, velocity = state["mean_square"], state["momentum"]
            mean_square.mul_(self.decay).addcmul_(param.grad, param.grad, value=1 - self.decay)
            root = (mean_square + self.eps).sqrt_()
            velocity.mul_(self.momentum).addcdiv_(param.grad, root, value=self.lr)
            param.sub_(velocity)


def make_optimizer(config: RunConfig, params: Iterable[torch.nn.Parameter]) -> Optimizer:
    """Return the optimiser that the config names."""
    if config.optimizer == "adam":
        return Adam(params, lr=config.learning_rate, eps=config.adam_eps)
    return RmsProp(
        params,
        lr=config.learning_rate,
        decay=config.rmsprop_decay,
        eps=config.rmsprop_eps,
        momentum=config.rmsprop_momentum,
    )


def annealed_rate(config: RunConfig, frames: int, total_frames: int | None) -> float:
    """Return the learning rate after `frames`: linear to 0 over the whole run, never per visit, or constant."""
    if not config.anneal or total_frames is None:
        return config.learning_rate
    return config.learning_rate * max(0.0, 1.0 - frames / total_frames)
