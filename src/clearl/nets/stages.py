"""Stages of torsos: convolutions, residual sections and dense layers, each open to a lateral input."""

from __future__ import annotations

from math import prod
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from clearl.nets.byte_conv import relu_conv

Shape = tuple[int, ...]


class Stage(Protocol):
    """One layer of a torso: a linear part, to which a lateral input may be added, then perhaps a ReLU."""

    out_shape: Shape

    def __call__(self, hidden: Tensor, lateral: Tensor | None = None) -> Tensor: ...

    def lateral(self, width: int) -> nn.Module:
        """Build a module from an input `width` channels or units wide to a lateral input of this stage."""
        ...


class Conv(nn.Module):
    """A convolution without padding."""

    def __init__(self, shape: Shape, channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.linear, self.stride = nn.Conv2d(shape[0], channels, kernel, stride), (stride, stride)
        self.out_shape = (channels, *((side - kernel) // stride + 1 for side in shape[1:]))

    @property
    def takes_pixels(self) -> bool:
        """True if bytes may be passed directly: no forward hook is registered, which the fused path would bypass."""
        return not self.linear._forward_hooks

    def forward(self, hidden: Tensor, lateral: Tensor | None = None) -> Tensor:
        if hidden.dtype == torch.uint8:
            assert lateral is None, "nothing comes before the pixels"
            return relu_conv(hidden, self.linear.weight, cast(Tensor, self.linear.bias), self.stride)
        total = self.linear(hidden)
        return _relu(total if lateral is None else total + lateral)

    def lateral(self, width: int) -> nn.Module:
        conv = self.linear
        return nn.Conv2d(width, conv.out_channels, cast(int, conv.kernel_size), cast(int, conv.stride), bias=False)


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.second(self.first(hidden.relu()).relu())


class Section(nn.Module):
    """A section of IMPALA's ResNet: convolution, max-pool of stride 2 (a lateral joins here), two residual blocks."""

    def __init__(self, shape: Shape, channels: int) -> None:
        super().__init__()
        self.enter = _pooled(nn.Conv2d(shape[0], channels, 3, padding=1))
        self.blocks = nn.Sequential(Residual(channels), Residual(channels))
        self.out_shape = (channels, *((side + 1) // 2 for side in shape[1:]))

    def forward(self, hidden: Tensor, lateral: Tensor | None = None) -> Tensor:
        total = self.enter(hidden)
        return self.blocks(total if lateral is None else total + lateral)

    def lateral(self, width: int) -> nn.Module:
        return _pooled(nn.Conv2d(width, self.out_shape[0], 3, padding=1, bias=False))


class Dense(nn.Module):
    """A fully connected layer over the flattened input."""

    def __init__(self, shape: Shape, size: int, *, relu_first: bool = False) -> None:
        """`relu_first` squashes the input too: the sections of the ResNet end without a ReLU."""
        super().__init__()
        self.relu_first, self.positions = relu_first, prod(shape[1:])
        self.linear = nn.Linear(prod(shape), size)
        self.out_shape = (size,)
        self.in_shape = shape
        self.norm: nn.LayerNorm | None = None
        self._columns: Tensor | None = None
        self._for_acting: tuple[Any, ...] = ()

    def add_layer_norm(self) -> None:
        """Normalise the sum of each step before its ReLU."""
        self.norm = nn.LayerNorm(list(self.out_shape))

    def forward(self, hidden: Tensor, lateral: Tensor | None = None) -> Tensor:
        total = self._linear(hidden.relu() if self.relu_first else hidden)
        total = total if lateral is None else total + lateral
        return _relu(total if self.norm is None else self.norm(total))

    def prepare_acting(self) -> None:
        """Take the weights as they are now for acting; to be called after every change of a network that only acts.

        For a few rows the product takes a quarter of the time if the weights lie [in, out].
        """
        with torch.no_grad():
            columns = self.linear.weight.t().contiguous()  # transpose first: the reordering then moves whole rows
            images = len(self.in_shape) == 3
            self._columns = columns.unflatten(0, self.in_shape).permute(1, 2, 0, 3).flatten(0, 2) if images else columns
        norm = None if self.norm is None else (self.out_shape, self.norm.weight, self.norm.bias, self.norm.eps)
        # Out of reach of `nn.Module.__getattr__`, which takes as long as an operation on a few rows.
        self._for_acting = self.linear._forward_hooks, self.linear.bias, self._columns, norm

    def act(self, hidden: Tensor) -> Tensor:
        """Return what `forward` returns, after `prepare_acting` and without calls of modules.

        With a few rows those take longer than the operations themselves.
        """
        hooks, bias, columns, norm = self._for_acting
        if hooks:
            return self(hidden)
        if self.relu_first:
            hidden = hidden.relu()
        if hidden.dim() != 2:
            hidden = (hidden.permute(0, 2, 3, 1) if hidden.dim() == 4 else hidden).flatten(1)
        total = torch.addmm(bias, hidden, columns)
        return (total if norm is None else torch.layer_norm(total, *norm)).relu_()

    def _linear(self, hidden: Tensor) -> Tensor:
        """Apply `linear` to the flattened input.

        Images lie channels last in memory, so that flattening would copy them.
        """
        acting = self._columns is not None and not torch.is_grad_enabled()
        # Forward hooks see calls of `linear` only: with one registered, the plain path is taken.
        # So does an exported graph, whose batch has no size yet.
        small = not acting and (torch.compiler.is_exporting() or hidden.numel() <= self.linear.weight.numel())
        if small or self.linear._forward_hooks:
            return self.linear(hidden.flatten(1))
        flat = (hidden.permute(0, 2, 3, 1) if hidden.dim() == 4 else hidden).flatten(1)
        if acting:
            return torch.addmm(self.linear.bias, flat, cast(Tensor, self._columns))
        # In a learner's batch the weights are smaller to transpose than the input, and the gradient comes back in the
        # layout that the layer before needs: 43 ms become 22 (MinAtar, B = 128).
        return functional.linear(flat, self._turned(), self.linear.bias)

    def _turned(self) -> Tensor:
        """Return the weights [out, in], in the order in which the input lies in memory."""
        weight = self.linear.weight
        return weight.unflatten(1, self.in_shape).permute(0, 2, 3, 1).flatten(1) if len(self.in_shape) == 3 else weight

    def lateral(self, width: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(width * self.positions, self.linear.out_features, bias=False))


def _relu(total: Tensor) -> Tensor:
    """Apply a ReLU, in place while acting, where no backward pass needs the input."""
    return total.relu() if torch.is_grad_enabled() else total.relu_()


def _pooled(conv: nn.Conv2d) -> nn.Sequential:
    return nn.Sequential(conv, nn.MaxPool2d(3, stride=2, padding=1))
