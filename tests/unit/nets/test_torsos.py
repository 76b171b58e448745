"""Torsos: what is done for speed changes no number that matters."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from clearl.nets.torsos import Dense, build_torso


@pytest.mark.parametrize("count", [2, 100])
def test_a_dense_layer_reads_images_in_the_order_of_its_weights(count: int) -> None:
    """With 2 images it turns the images around, with 100 its weights; either way the answer is that of a plain one."""
    generator = torch.Generator().manual_seed(0)
    layer = Dense((4, 5, 6), 32)
    images = torch.rand(count, 4, 5, 6, generator=generator).contiguous(memory_format=torch.channels_last)
    assert (images.numel() > layer.linear.weight.numel()) == (count == 100)
    images.requires_grad_()
    layer(images).square().sum().backward()
    found = [images.grad, layer.linear.weight.grad]
    plain = [tensor.detach().clone().requires_grad_() for tensor in (images, layer.linear.weight)]
    flat = functional.linear(plain[0].flatten(1), plain[1], layer.linear.bias).relu()
    flat.square().sum().backward()
    for got, expected in zip(found, plain, strict=True):
        torch.testing.assert_close(got, expected.grad, rtol=1e-4, atol=1e-5)


def test_pixels_are_scaled_to_one_however_many_there_are() -> None:
    torso = build_torso("impala_shallow", (4, 36, 36))
    pixels = torch.randint(0, 256, (70, 4, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    prepared = torso.prepare(pixels)
    assert torch.equal(prepared, pixels.to(torch.float32) * (1 / 255))
    assert prepared.is_contiguous(memory_format=torch.channels_last)
