"""L2 towards the initial parameters: the term by hand, and what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from clearl.config import RunConfig
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.methods.clear import Clear
from clearl.methods.ewc import Ewc
from clearl.methods.l2_init import L2Init
from clearl.methods.method import Method, layers
from clearl.nets.network import as_module, build_network
from clearl.spaces import discrete_spec
from clearl.types import Batch, Visit

SPEC = discrete_spec((4,), "float32", 3)


def a_learner(method: Method, **settings: Any) -> Learner:
    network = method.build_network(lambda: build_network(SPEC, torso="mlp", lstm=False, lstm_size=8, seed=1))
    config = RunConfig(torso="mlp", **settings)
    return Learner(network=network, method=method, config=config, batch_frames=30, total_frames=None)


def distance(learner: Learner) -> float:
    start = build_network(SPEC, torso="mlp", lstm=False, lstm_size=8, seed=1)
    pairs = zip(as_module(learner.network).parameters(), start.parameters(), strict=True)
    return sum(float((a - b).detach().square().sum()) for a, b in pairs)


def test_the_term_is_the_squared_distance_from_the_first_parameters(a_batch: Callable[..., Batch]) -> None:
    learner = a_learner(L2Init(Clear(), weight=0.5))
    assert learner.method.weights() == {**Clear().weights(), "l2_init": 0.5}
    assert learner.method.losses(learner.network, a_batch(SPEC))["l2_init"].item() == 0
    for seed in range(5):
        learner.update(a_batch(SPEC, seed=seed), None)
    term = learner.method.losses(learner.network, a_batch(SPEC))["l2_init"]
    assert term.item() == pytest.approx(distance(learner), rel=1e-5) and term.item() > 0


def test_the_more_weight_the_nearer_training_stays_to_the_start(a_batch: Callable[..., Batch]) -> None:
    found = []
    for weight in (0.0, 1.0, 100.0):
        learner = a_learner(L2Init(Clear(), weight=weight))
        for seed in range(30):
            learner.update(a_batch(SPEC, seed=seed), None)
        found.append(distance(learner))
    assert found[0] > 2 * found[1] > 4 * found[2]


def test_it_combines_with_ewc_on_either_side_and_is_told_nothing(a_batch: Callable[..., Batch]) -> None:
    for method in (L2Init(Ewc(Clear())), Ewc(L2Init(Clear()))):
        learner = a_learner(method)
        for update in range(4):
            learner.update(a_batch(SPEC, seed=update), Visit(update // 2, ("ab"[update // 2],), 0, 0, 100))
        assert {"ewc", "l2_init"} <= learner.method.weights().keys()
    assert not L2Init(Clear()).needs_boundaries


def test_the_setting_reaches_the_method() -> None:
    outer, _ = layers(make_method(RunConfig(method="l2-init+clear", l2_init_weight=0.25)))
    assert isinstance(outer, L2Init) and outer.weight == 0.25


def test_the_start_comes_back_from_a_checkpoint(a_batch: Callable[..., Batch]) -> None:
    one = a_learner(L2Init(Clear()))
    other = L2Init(Clear())
    other.build_network(lambda: build_network(SPEC, torso="mlp", lstm=False, lstm_size=8, seed=2))
    other.restore(one.network, one.method.tensors(), one.method.state())
    assert all(torch.equal(tensor, other.tensors()[name]) for name, tensor in one.method.tensors().items())
