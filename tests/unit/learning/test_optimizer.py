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
    """Return the parameters after each of five steps; the last has no gradient in the third."""
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


KINDS: list[Literal["adam", "rmsprop"]] = ["adam", "rmsprop"]


def stepped(kind: Literal["adam", "rmsprop"], values: torch.Tensor, seed: int) -> tuple[torch.nn.Parameter, Optimizer]:
    """A parameter and its optimiser after five random steps."""
    param = torch.nn.Parameter(values.clone())
    optimizer = make_optimizer(RunConfig(optimizer=kind, rmsprop_momentum=0.9), [param])
    for number in range(5):
        param.grad = torch.randn(param.shape, generator=torch.Generator().manual_seed(100 * seed + number))
        optimizer.step()
    return param, optimizer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [None, 2, [0, 3], (slice(None), [1])])
def test_what_was_reset_moves_like_a_new_parameter_and_the_rest_goes_on(
    kind: Literal["adam", "rmsprop"], index: Any
) -> None:
    values = torch.randn(4, 3, generator=torch.Generator().manual_seed(7))
    param, optimizer = stepped(kind, values, seed=1)
    untouched, onward = stepped(kind, values, seed=1)
    fresh = torch.nn.Parameter(param.detach().clone())
    start = make_optimizer(RunConfig(optimizer=kind, rmsprop_momentum=0.9), [fresh])
    optimizer.reset(param, index)
    for number in range(3):
        gradient = torch.randn(4, 3, generator=torch.Generator().manual_seed(number))
        for other, its in ((param, optimizer), (untouched, onward), (fresh, start)):
            other.grad = gradient.clone()
            its.step()
    again = torch.zeros(4, 3, dtype=torch.bool)
    again[slice(None) if index is None else index] = True
    torch.testing.assert_close(param[again], fresh[again], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(param[~again], untouched[~again], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_which_a_part_was_reset_comes_back(kind: Literal["adam", "rmsprop"]) -> None:
    param, optimizer = stepped(kind, torch.ones(4, 3), seed=1)
    optimizer.reset(param, [1])
    other = torch.nn.Parameter(param.detach().clone())
    after = make_optimizer(RunConfig(optimizer=kind, rmsprop_momentum=0.9), [other])
    after.restore({name: tensor.clone() for name, tensor in optimizer.tensors().items()})
    for number in range(3):
        for one, its in ((param, optimizer), (other, after)):
            one.grad = torch.randn(4, 3, generator=torch.Generator().manual_seed(number))
            its.step()
    assert torch.equal(param, other)


def test_only_parameters_of_the_optimiser_can_be_reset() -> None:
    param, optimizer = stepped("adam", torch.ones(4, 3), seed=1)
    with pytest.raises(ValueError, match="not a parameter"):
        optimizer.reset(torch.nn.Parameter(param.detach().clone()))
