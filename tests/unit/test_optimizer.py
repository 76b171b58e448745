"""RMSProp as in TensorFlow, and the learning rate's schedule."""

from __future__ import annotations

import math

import pytest
import torch

from clearl.config import RunConfig
from clearl.optimizer import RmsProp, annealed_rate, make_optimizer


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


@pytest.mark.parametrize(
    ("config", "kind"),
    [(RunConfig(optimizer="adam"), torch.optim.Adam), (RunConfig(optimizer="rmsprop"), RmsProp)],
)
def test_the_config_names_the_optimizer(config: RunConfig, kind: type) -> None:
    assert isinstance(make_optimizer(config, [torch.nn.Parameter(torch.ones(1))]), kind)


def test_the_rate_falls_over_the_whole_run_and_never_below_zero() -> None:
    config = RunConfig(learning_rate=2.0, anneal=True)
    assert [annealed_rate(config, frames, 100) for frames in (0, 50, 100, 150)] == [2.0, 1.0, 0.0, 0.0]
    assert annealed_rate(RunConfig(learning_rate=2.0, anneal=False), 50, 100) == 2.0
