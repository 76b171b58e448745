"""Replayed unrolls start from the state that was asked for; burn-in against an unroll written out step by step."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from clearl.config import RunConfig
from clearl.learning.batching import make_batch
from clearl.learning.learner import Learner
from clearl.learning.replay_state import burnt_in, with_replay_state
from clearl.methods import make_method
from clearl.methods.clear import Clear
from clearl.nets.network import ActorCritic, StepInput, build_network
from clearl.spaces import discrete_spec
from clearl.types import Batch, Visit
from clearl.unroll import UnrollLayout

T, SPEC = 6, discrete_spec((4,), "float32", 3)
REPLAY = [False, True, True, False, True]


def a_network() -> ActorCritic:
    return build_network(SPEC, torso="mlp", lstm=True, lstm_size=8, seed=1)


def a_batch(core_size: int = 16, replay: list[bool] = REPLAY) -> Batch:
    rng, layout = np.random.default_rng(0), UnrollLayout(SPEC, T, core_size)
    unrolls = layout.empty(len(replay))
    arrays = (unrolls.frames, unrolls.reward, unrolls.policy, unrolls.value, unrolls.core_state, unrolls.last_reward)
    for array in arrays:
        array[:] = rng.normal(size=array.shape)
    unrolls.action[:] = rng.integers(3, size=unrolls.action.shape)
    unrolls.first[:] = rng.random(unrolls.first.shape) < 0.15
    unrolls.terminated[:] = unrolls.first[:, 1:]
    unrolls.valid[:] = rng.random(unrolls.valid.shape) < 0.9
    unrolls.mask[:] = True
    return make_batch(unrolls, np.array(replay), layout, 0.9, "none")


def config(**settings: Any) -> RunConfig:
    return RunConfig(torso="mlp", lstm=True, lstm_size=8, unroll_steps=T, **settings)


def test_stored_is_the_batch_as_it_came() -> None:
    batch = a_batch()
    assert with_replay_state(a_network(), batch, config()) is batch


def test_zero_is_for_replay_alone() -> None:
    batch = a_batch()
    found = with_replay_state(a_network(), batch, config(replay_state="zero"))
    for column, replayed in enumerate(REPLAY):
        expected = torch.zeros(16) if replayed else batch.core_state[column]
        assert torch.equal(found.core_state[column], expected)
    others = [field.name for field in fields(batch) if field.name != "core_state"]
    assert all(getattr(found, name) is getattr(batch, name) for name in others)


def shorter(network: ActorCritic, batch: Batch, column: int, steps: int) -> Batch:
    """One unroll without its first steps, from the state to which they lead one after the other."""
    state = batch.core_state[column : column + 1]
    with torch.no_grad():
        for step in range(steps):
            here = slice(column, column + 1)
            inputs = StepInput(
                batch.observation[step, here], batch.last_action[step, here], batch.last_reward[step, here],
                batch.first[step, here],
            )  # fmt: skip
            state = network.act(inputs, state).state
    fixed = {"mask": batch.mask[column : column + 1], "is_replay": batch.is_replay[column : column + 1]}
    timed = {
        name: part[steps:, column : column + 1]
        for name, part in vars(batch).items()
        if name not in ("core_state", *fixed)
    }
    return Batch(core_state=state, **fixed, **timed)


def summed(losses: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(losses.values())).sum()


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_burn_in_is_the_loss_of_a_shorter_unroll_from_the_state_after_it(steps: int) -> None:
    network, batch, method = a_network(), a_batch(), Clear()
    parameters = list(network.parameters())
    expected = dict.fromkeys(method.weights(), 0.0)
    gradients = [torch.zeros_like(parameter) for parameter in parameters]
    for column, replayed in enumerate(REPLAY):
        one = method.losses(network, shorter(network, batch, column, steps if replayed else 0))
        for name, loss in one.items():
            expected[name] += loss.item()
        for total, part in zip(gradients, torch.autograd.grad(summed(one), parameters), strict=True):
            total += part
    losses = method.losses(network, burnt_in(network, batch, steps))
    assert {name: loss.item() for name, loss in losses.items()} == pytest.approx(expected, rel=1e-4)
    found = torch.autograd.grad(summed(losses), parameters)
    for one, other in zip(found, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_new_unrolls_are_not_touched_and_nothing_is_where_there_is_no_replay() -> None:
    network, batch = a_network(), a_batch()
    found = burnt_in(network, batch, 2)
    new = ~batch.is_replay
    for name, part in vars(batch).items():
        columns = new if name in ("core_state", "mask", "is_replay") else (slice(None), new)
        assert torch.equal(getattr(found, name)[columns], part[columns]), name
    plain = a_batch(replay=[False] * 5)
    for one, other in zip(burnt_in(network, plain, 2), plain, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("method", ["clear", "ewc+clear", "progress-compress+clear"])
@pytest.mark.parametrize("state", [{"replay_state": "zero"}, {"replay_state": "burn-in"}, {}])
def test_every_method_learns_with_every_state(method: str, state: dict[str, Any]) -> None:
    settings = config(method=method, fisher_batches=2, diagnose_every_updates=2, **state)
    made = make_method(settings)
    network = made.build_network(a_network)
    learner = Learner(network=network, method=made, config=settings, batch_frames=30, total_frames=None)
    batch = a_batch(network.core_size)
    before = [parameter.detach().clone() for parameter in learner.parameters]
    for update in range(2):
        visit = Visit(0, ("t",), 30 * update, 0, 1000)
        assert learner.update(batch, visit if made.needs_boundaries else None).applied
    assert any(not torch.equal(a, b) for a, b in zip(before, learner.parameters, strict=True))


def test_the_default_burn_in_is_a_quarter_of_the_unroll() -> None:
    network, batch = a_network(), a_batch()
    found = with_replay_state(network, batch, config(replay_state="burn-in"))
    for one, other in zip(found, burnt_in(network, batch, 1), strict=True):
        assert torch.equal(one, other)
