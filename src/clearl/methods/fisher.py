"""The diagonal of the Fisher information of a policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from clearl.methods.fisher_memory import STEPS_PER_UNROLL, Windows
from clearl.nets.network import PolicyNetwork, StepInput, as_module

# More at a time would be no faster, and the patches of a deep net's convolutions take 4 MB a step.
_CHUNK_WINDOWS = 32

_Named = dict[str, Tensor]


def diagonal_fisher(network: PolicyNetwork, windows: Windows, rng: np.random.Generator) -> dict[str, Tensor]:
    """Estimate E[(d log pi(a|s) / d theta)^2] by parameter name, averaged per step.

    The expectation over actions is exact for real numbers; of choices, one is sampled from the policy. The gradient of
    every step is squared by itself. With a memory it reaches back to the start of the window, and up to 4 steps of each
    window are used; without one, every window is a single step.
    """
    total, length = windows["valid"].shape
    # A random order of each window's steps, those that are not valid last.
    order = np.argsort(rng.random((total, length)) - windows["valid"].cpu().numpy(), axis=1)[:, :STEPS_PER_UNROLL]
    position = torch.from_numpy(order).to(windows["valid"].device)
    valid = windows["valid"].gather(1, position)
    uniform = torch.from_numpy(rng.random((*order.shape, *network.head.uniform_shape), np.float32)).to(valid.device)
    draws = [windows[name] for name in (*StepInput._fields, "core_state", "mask")] + [position, valid, uniform]

    module = as_module(network)
    sum_squares = _by_layers if length == 1 and _in_layers(module) else _by_steps
    sums = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    with _differentiable(module):
        for start in range(0, total, _CHUNK_WINDOWS):
            part = (tensor[start : start + _CHUNK_WINDOWS] for tensor in draws)
            squares = sum_squares(network, *part)
            assert squares.keys() == sums.keys(), f"no Fisher for {sorted(sums.keys() - squares.keys())}"
            for name, square in squares.items():
                sums[name] += square
    count = valid.sum()
    return {name: square / count for name, square in sums.items()}


@contextmanager
def _differentiable(module: nn.Module) -> Iterator[None]:
    """Give gradients to frozen parameters, too, while the block runs."""
    frozen = [p for p in module.parameters() if not p.requires_grad]
    for p in frozen:
        p.requires_grad_(True)
    try:
        with torch.enable_grad():
            yield
    finally:
        for p in frozen:
            p.requires_grad_(False)


def _in_layers(module: nn.Module) -> bool:
    """Return whether every parameter belongs to a plain convolution or linear layer, and to one only."""
    layers = [part for part in module.modules() if _is_plain(part)]
    return sum(len(list(part.parameters(recurse=False))) for part in layers) == len(list(module.parameters()))


def _is_plain(part: nn.Module) -> bool:
    if isinstance(part, nn.Conv2d):
        return part.groups == 1 and not isinstance(part.padding, str) and part.padding_mode == "zeros"
    return isinstance(part, nn.Linear)


def _by_layers(network: PolicyNetwork, *windows: Tensor) -> _Named:
    """Sum over single steps without ever holding one step's gradient: several times as fast as `_by_steps`.

    A layer's gradient at one step is made of its input and the gradient of its output at that step.
    """
    *inputs, core_state, mask, _, valid, uniform = windows
    module = as_module(network)
    with _recorded(module) as calls:
        column = StepInput(*(part.transpose(0, 1) for part in inputs))  # [1, N, ...]
        policy = network.head.distribution(network.unroll(column, core_state).policy[0], mask)
    if sorted(call[0] for call in calls) != sorted(name for name, part in module.named_modules() if _is_plain(part)):
        return _by_steps(network, *windows)  # a layer was bypassed or used twice: its calls do not say its gradient
    roots = policy.fisher_roots(uniform.squeeze(1))[valid.squeeze(1)]
    sums: _Named = {}
    for root in roots.sum(0):
        deltas = torch.autograd.grad(root, [call[2] for call in calls], retain_graph=True, allow_unused=True)
        for (name, layer, output, entered), delta in zip(calls, deltas, strict=True):
            delta = torch.zeros_like(output) if delta is None else delta
            for key, square in _layer_squares(layer, entered, delta).items():
                sums[f"{name}.{key}"] = sums.get(f"{name}.{key}", 0) + square
    return sums


@contextmanager
def _recorded(module: nn.Module) -> Iterator[list[tuple[str, nn.Module, Tensor, Tensor]]]:
    """Record (name, layer, output, input) of every call of a plain layer while the block runs."""
    calls: list[tuple[str, nn.Module, Tensor, Tensor]] = []

    def note(name: str):
        def hook(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            calls.append((name, layer, output, args[0].detach()))

        return hook

    handles = [part.register_forward_hook(note(name)) for name, part in module.named_modules() if _is_plain(part)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _layer_squares(layer: nn.Module, entered: Tensor, delta: Tensor) -> _Named:
    if isinstance(layer, nn.Conv2d):
        geometry = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
        patches = functional.unfold(entered, layer.weight.shape[2:], **geometry)  # [N, C*K*K, places]
        delta = delta.flatten(2)
        weight = (delta @ patches.transpose(1, 2)).square().sum(0).view_as(layer.weight)
        bias = delta.sum(2).square().sum(0)
    else:
        delta, entered = delta.flatten(0, -2).square(), entered.flatten(0, -2).square()
        weight, bias = delta.t() @ entered, delta.sum(0)
    return {"weight": weight, "bias": bias} if layer.bias is not None else {"weight": weight}


def _by_steps(network: PolicyNetwork, *windows: Tensor) -> _Named:
    """Sum over the drawn steps of windows, by a backward pass for each step; for a network of any kind."""
    parameters = dict(as_module(network).named_parameters())
    sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for *inputs, core_state, mask, position, valid, uniform in zip(*windows, strict=True):
        column = StepInput(*(part.unsqueeze(1) for part in inputs))  # [L, 1, ...]
        allowed = mask if mask.dim() == 1 else mask[position]
        output = network.unroll(column, core_state.unsqueeze(0))
        policy = network.head.distribution(output.policy[position, 0], allowed)
        for root in policy.fisher_roots(uniform)[valid].flatten():
            grads = torch.autograd.grad(root, list(parameters.values()), retain_graph=True, allow_unused=True)
            for total, grad in zip(sums.values(), grads, strict=True):
                if grad is not None:
                    total.addcmul_(grad, grad)
    return sums
