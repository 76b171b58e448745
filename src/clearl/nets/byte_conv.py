"""The first convolution of a torso, straight from bytes. The division by 255 is left to the weights, which are fewer.

As floats, the images of an Atari batch are 76 MB, which are written once and read twice, from memory each time. In the
learner a few images at a time are converted and convolved while they are in the cache, and converted again for the
gradient: a step of the shallow net takes 0.88 to 0.96 of the time. Inference takes about 0.9 of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_AT_ONCE = 64
_SCALE = 1 / 255


def relu_conv(pixels: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int]) -> Tensor:
    """Compute relu(conv(pixels / 255)) of bytes [N, C, H, W], without padding; no gradient goes to the pixels."""
    if not torch.is_grad_enabled():
        return functional.conv2d(pixels.float(), weight * _SCALE, bias, stride).relu_()
    return cast(Tensor, _ReluConv.apply(pixels, weight, bias, stride))


class _ReluConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pixels: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int]) -> Tensor:
        scaled, output = weight * _SCALE, _empty_output(pixels, weight, stride)
        for part, images in _as_floats(pixels):
            torch.clamp_min(functional.conv2d(images, scaled, bias, stride), 0, out=output[part])
        ctx.save_for_backward(pixels, weight, output)
        ctx.stride = stride
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor, None]:
        (grad,), (pixels, weight, output) = grads, ctx.saved_tensors
        weight_grad, bias_grad = torch.zeros_like(weight), weight.new_zeros(len(weight))
        for part, images in _as_floats(pixels):
            inner = torch.ops.aten.threshold_backward(grad[part], output[part], 0)
            _, of_weight, of_bias = torch.ops.aten.convolution_backward(
                inner, images, weight, [len(weight)], ctx.stride, [0, 0], [1, 1], False, [0, 0], 1, [False, True, True]
            )
            weight_grad += of_weight
            bias_grad += of_bias
        return None, weight_grad.mul_(_SCALE), bias_grad, None


def _as_floats(pixels: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield a few images at a time and where they are, each time in the place of those before."""
    place = torch.empty_like(pixels[:_AT_ONCE], dtype=torch.float32)
    for start in range(0, len(pixels), _AT_ONCE):
        some = pixels[start : start + _AT_ONCE]
        yield slice(start, start + len(some)), place[: len(some)].copy_(some)


def _empty_output(pixels: Tensor, weight: Tensor, stride: tuple[int, int]) -> Tensor:
    height, width = (
        (side - kernel) // step + 1
        for side, kernel, step in zip(pixels.shape[2:], weight.shape[2:], stride, strict=True)
    )
    shape = (len(pixels), len(weight), height, width)
    return torch.empty(shape, dtype=weight.dtype, memory_format=torch.channels_last)
