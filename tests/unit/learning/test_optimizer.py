"""RMSProp as in TensorFlow, and the learning rate's schedule."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any, Literal

import pytest
import torch

from clearl.config import RunConfig
from clearl.learning.optimizer import Adam, Optimizer, RmsProp, annealed_rate, make_optimizer


def test_rmsprop_by_hand() -> None:
    # ms = 0.9*1 + 0.1*g^2; x -= lr * g / sqrt(ms + eps), twice with g = 2 and lr = 0.1, eps = 0.1.
    x = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = RmsProp([x], lr=0.1, decay=0.9, eps=0.1)
    expected, ms = 1.0, 1.0
    for _ in range(2):
        x.grad = torch.tensor([2.0])
        optimizer.step()
        ms = 0.9 * ms + 0.1 * 4.0
        expected -= 0.1 * 2.0 / math.sqrt(ms + 0.1)
    assert x.item() == pytest.approx(expected, rel=1e-6)


def test_rmsprop_momentum_by_hand() -> None:
    x = torch.nn.Parameter(torch.tensor([0.0]))
    optimizer = RmsProp([x], lr=0.5, decay=0.5, eps=0.0, momentum=0.5)
    for _ in range(2):
        x.grad = torch.tensor([1.0])
        optimizer.step()
    # ms stays 1: velocities 0.5, then 0.5*0.5 + 0.5.
    assert x.item() == pytest.approx(-0.5 - 0.75)


def test_rmsprop_leaves_parameters_without_gradient_alone() -> None:
    moved, still = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    moved.grad = torch.ones(1)
    RmsProp([moved, still], lr=0.1).step()
    assert moved.item() != 1 and still.item() == 1


def random_steps(optimizer: Any, params: list[torch.nn.Parameter], seed: int) -> list[list[torch.Tensor]]:
    """What the parameters are after each of five steps; the last has no gradient in the third."""
    generator, seen = torch.Generator().manual_seed(seed), []
    for number in range(5):
        for param in params:
            param.grad = torch.randn(param.shape, generator=generator)
        if number == 2:
            params[-1].grad = None
        optimizer.step()
        seen.append([param.detach().clone() for param in params])
    return seen


def some_params() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(16, 4, 3, 3), (7, 5), (5,)]
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def test_adam_is_torchs_bit_for_bit() -> None:
    ours, theirs = some_params(), some_params()
    steps = random_steps(Adam(ours, lr=3e-3, eps=1e-5), ours, seed=1)
    expected = random_steps(torch.optim.Adam(theirs, lr=3e-3, eps=1e-5, fused=True), theirs, seed=1)
    assert same(steps, expected)


def same(one: list[list[torch.Tensor]], two: list[list[torch.Tensor]]) -> bool:
    pairs = [pair for some in zip(one, two, strict=True) for pair in zip(*some, strict=True)]
    return all(torch.equal(ours, theirs) for ours, theirs in pairs)


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_the_state_comes_back_and_what_does_not_fit_is_refused(kind: Literal["adam", "rmsprop"]) -> None:
    def make(params: list[torch.nn.Parameter]) -> Optimizer:
        return make_optimizer(RunConfig(optimizer=kind), params)

    params = some_params()
    before = make(params)
    random_steps(before, params, seed=1)
    saved = {name: tensor.clone() for name, tensor in before.tensors().items()}
    others = [torch.nn.Parameter(param.detach().clone()) for param in params]
    after = make(others)
    after.restore(saved)
    assert same(random_steps(before, params, 2), random_steps(after, others, 2))
    assert not any(tensor is after.tensors()[name] for name, tensor in saved.items()), "a copy"
    (first, *_) = saved
    for damaged in (
        {name: tensor for name, tensor in saved.items() if name != first},
        saved | {"0/other": torch.zeros(())},
        saved | {"1/" + first.partition("/")[2]: torch.zeros(3, 3)},
    ):
        with pytest.raises(ValueError, match="does not fit"):
            after.restore(damaged)
    with pytest.raises(IndexError):
        after.restore({"99/step": torch.zeros(())})


def test_an_optimiser_does_not_import_torchs_compiler() -> None:
    code = """
import sys, torch
from clearl.learning.optimizer import Adam, RmsProp
for kind in (Adam, RmsProp):
    x = torch.nn.Parameter(torch.ones(2))
    x.grad = torch.ones(2)
    kind([x], lr=0.1, eps=0.1).step()
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("config", "kind"),
    [(RunConfig(optimizer="adam"), Adam), (RunConfig(optimizer="rmsprop"), RmsProp)],
)
def test_the_config_names_the_optimizer(config: RunConfig, kind: type) -> None:
    assert isinstance(make_optimizer(config, [torch.nn.Parameter(torch.ones(1))]), kind)


def test_the_rate_falls_over_the_whole_run_and_never_below_zero() -> None:
    config = RunConfig(learning_rate=2.0, anneal=True)
    assert [annealed_rate(config, frames, 100) for frames in (0, 50, 100, 150)] == [2.0, 1.0, 0.0, 0.0]
    assert annealed_rate(RunConfig(learning_rate=2.0, anneal=False), 50, 100) == 2.0
