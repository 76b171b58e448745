"""The convolution from bytes, next to the same in float64 and to the way over floats."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from clearl.nets import byte_conv
from clearl.nets.byte_conv import relu_conv
from clearl.nets.torsos import Torso, build_torso

SHAPE = (3, 20, 24)


def images(count: int, *, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("count", [1, 4, 5, 11])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_output_and_gradients_are_those_of_the_formula(
    count: int, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_conv, "_AT_ONCE", 4)
    generator = torch.Generator().manual_seed(7)
    pixels = images(count).contiguous(memory_format=layout)
    weight = torch.randn(5, 3, 4, 4, generator=generator).requires_grad_()
    bias = torch.randn(5, generator=generator).requires_grad_()
    exact_weight, exact_bias = weight.detach().double().requires_grad_(), bias.detach().double().requires_grad_()
    exact = functional.conv2d(pixels.double() / 255, exact_weight, exact_bias, (2, 3)).relu()
    output = relu_conv(pixels, weight, bias, (2, 3))
    with torch.no_grad():
        torch.testing.assert_close(relu_conv(pixels, weight, bias, (2, 3)).double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(output.double(), exact, rtol=1e-5, atol=1e-5)
    assert 0.1 < (output == 0).double().mean() < 0.9
    grad = torch.randn(exact.shape, generator=generator)
    output.backward(grad)
    exact.backward(grad.double())
    assert weight.grad is not None and bias.grad is not None
    torch.testing.assert_close(weight.grad.double(), exact_weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(bias.grad.double(), exact_bias.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("torso", ["impala_shallow", "nature", "impala_deep", "mlp"])
def test_a_torso_answers_the_same_whether_it_learns_or_acts(torso: str) -> None:
    net, observed = build_torso(torso, (4, 84, 84)), images(3, shape=(4, 84, 84))
    learning = net(observed)
    with torch.no_grad():
        torch.testing.assert_close(net(observed), learning, rtol=1e-4, atol=1e-4)
    learning.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in net.parameters())


def test_bytes_stay_bytes_only_where_a_convolution_comes_first() -> None:
    shallow, deep = build_torso("impala_shallow", (4, 84, 84)), build_torso("impala_deep", (4, 84, 84))
    observed = images(2, shape=(4, 84, 84))
    assert isinstance(shallow, Torso) and isinstance(deep, Torso)
    assert shallow.prepare(observed).dtype == torch.uint8
    assert deep.prepare(observed).dtype == torch.float32
    with torch.no_grad():
        assert shallow.prepare(observed).dtype == torch.uint8
        assert deep.prepare(observed).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert shallow.prepare(observed).dtype == torch.float32


def test_hooks_hear_of_every_convolution() -> None:
    torso, heard = build_torso("impala_shallow", (4, 84, 84)), []
    convolutions = [part for part in torso.modules() if isinstance(part, torch.nn.Conv2d)]
    for part in convolutions:
        part.register_forward_hook(lambda layer, args, output: heard.append((args[0].dtype, output.min().item() < 0)))
    torso(images(2, shape=(4, 84, 84)))
    assert heard == [(torch.float32, True), (torch.float32, True)]  # floats come in, and go out before the ReLU


def test_weights_that_do_not_learn_get_no_gradient() -> None:
    torso = build_torso("impala_shallow", (4, 84, 84))
    for parameter in torso.parameters():
        parameter.requires_grad_(False)
    assert not torso(images(2, shape=(4, 84, 84))).requires_grad
