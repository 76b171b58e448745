"""Diagnostics equal a second, plain computation, and change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from clearl.config import RunConfig
from clearl.learning.batching import make_batch
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.methods.clear import Clear
from clearl.methods.corrections import Trace, Vtrace
from clearl.methods.method import Method
from clearl.nets.heads.categorical import MaskedCategorical
from clearl.nets.network import PolicyNetwork, StepInput, as_module, build_network
from clearl.spaces import discrete_spec
from clearl.types import Batch, Visit
from clearl.unroll import UnrollLayout

SPEC = discrete_spec((4,), "float32", 3)


def a_batch(core_size: int = 0, replay: tuple[bool, ...] = (False, True, True, False, False)) -> Batch:
    rng, layout = np.random.default_rng(0), UnrollLayout(SPEC, 5, core_size)
    unrolls = layout.empty(len(replay))
    for array in (unrolls.frames, unrolls.reward, unrolls.policy, unrolls.value, unrolls.core_state):
        array[:] = rng.normal(size=array.shape)
    unrolls.action[:] = rng.integers(3, size=unrolls.action.shape)
    unrolls.first[:] = rng.random(unrolls.first.shape) < 0.2
    unrolls.valid[:] = rng.random(unrolls.valid.shape) < 0.8
    unrolls.mask[:] = True
    return make_batch(unrolls, np.array(replay), layout, 0.9, "none")


def a_learner(method: Method | None = None, *, lstm: bool = False, **settings: Any) -> Learner:
    config = RunConfig(torso="mlp", **{"diagnose_every_updates": 1, **settings})
    method = method or Clear(correction=Vtrace(config.rho_bar))
    network = method.build_network(lambda: build_network(SPEC, torso="mlp", lstm=lstm, lstm_size=8, seed=1))
    return Learner(network=network, method=method, config=config, batch_frames=30, total_frames=None)


def columns_of(batch: Batch, chosen: torch.Tensor) -> Batch:
    """Some unrolls of a batch, as a batch of their own."""
    first = {"core_state", "mask", "is_replay"}
    return Batch(**{name: part[chosen] if name in first else part[:, chosen] for name, part in vars(batch).items()})


def gradient(network: PolicyNetwork, loss: torch.Tensor) -> torch.Tensor:
    found = torch.autograd.grad(loss, list(as_module(network).parameters()), allow_unused=True)
    return torch.cat([part.flatten() for part in found if part is not None])


@pytest.mark.parametrize("lstm", [False, True])
def test_halves_and_terms_are_those_of_the_loss_of_each_alone(lstm: bool) -> None:
    learner = a_learner(Clear(correction=Vtrace(1.3)), lstm=lstm, rho_bar=1.3)
    batch, method, weights = a_batch(learner.network.core_size), learner.method, learner.method.weights()
    alone = {}
    for name, half in (("new", ~batch.is_replay), ("replay", batch.is_replay)):
        losses = method.losses(learner.network, columns_of(batch, half))
        total = torch.stack([weights[term] * loss for term, loss in losses.items()]).sum()
        alone[name] = gradient(learner.network, total)
    terms = {
        name: float(weights[name] * gradient(learner.network, method.losses(learner.network, batch)[name]).norm())
        for name in weights
    }
    found = learner.update(batch, None).diagnostics
    assert found is not None
    for name, one in alone.items():
        assert found[name]["grad_norm"] == pytest.approx(float(one.norm()), rel=1e-4)
    cosine = torch.nn.functional.cosine_similarity(alone["new"], alone["replay"], dim=0)
    assert found["between"]["cosine"] == pytest.approx(float(cosine), rel=1e-3)
    assert found["terms"] == pytest.approx(terms, rel=1e-4)


def test_means_over_the_steps_of_each_half() -> None:
    learner = a_learner(rho_bar=1.2)
    batch, head = a_batch(), learner.network.head
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    with torch.no_grad():
        output = learner.network.unroll(inputs, batch.core_state)
    policy = head.distribution(output.policy[:-1], batch.mask)
    behaviour = head.distribution(batch.behaviour_policy, batch.mask)
    assert isinstance(policy, MaskedCategorical) and isinstance(behaviour, MaskedCategorical)
    ratio = (policy.log_prob(batch.action) - behaviour.log_prob(batch.action)).exp()
    ignored = ~batch.valid
    rewards = torch.where(ignored, output.value[:-1], batch.reward)
    discounts = batch.discount.masked_fill(ignored, 0.0)
    trace = Trace(ratio, discounts, rewards, output.value[:-1], output.value[-1], policy, behaviour)
    targets, _ = Vtrace(rho_bar=1.2)(trace)
    found = learner.update(batch, None).diagnostics
    assert found is not None
    for name, half in (("new", ~batch.is_replay), ("replay", batch.is_replay)):
        steps = [(t, b) for t in range(5) for b in range(5) if batch.valid[t, b] and half[b]]
        pi, mu = (np.array([each.probs[step].tolist() for step in steps]) for each in (policy, behaviour))
        expected = {
            "entropy": -np.mean((pi * np.log(pi)).sum(1)),
            "mean_rho": np.mean([min(1.2, float(ratio[step])) for step in steps]),
            "clipped_share": np.mean([float(ratio[step]) > 1.2 for step in steps]),
            "kl": np.mean((mu * np.log(mu / pi)).sum(1)),
            "value_error": np.mean([float((output.value[:-1] - targets)[step].abs()) for step in steps]),
        }
        assert {key: found[name][key] for key in expected} == pytest.approx(expected, rel=1e-4)
        assert 0 < found[name]["clipped_share"] < 1


def test_without_replay_there_is_one_half() -> None:
    found = a_learner().update(a_batch(replay=(False,) * 5), None).diagnostics
    assert found is not None and set(found) == {"new", "terms"}
    assert found["terms"]["policy_cloning"] == 0


METHODS = ["clear", "ewc", "online-ewc+clear", "progress-compress+clear"]


@pytest.mark.parametrize("method", METHODS)
def test_looking_changes_nothing(method: str) -> None:
    """Over a switch of task and into a compress phase, where there is one."""
    trained = []
    for every in (None, 2):
        config = RunConfig(method=method, fisher_batches=2, frames_per_visit=90, compress_frames=30)
        learner = a_learner(make_method(config), lstm=True, diagnose_every_updates=every)
        batch, looks = a_batch(learner.network.core_size), []
        for update in range(6):
            index = update // 3
            visit = Visit(index, (f"task {index}",), update * 30, index * 90, index * 90 + 90)
            stats = learner.update(batch, visit if learner.method.needs_boundaries else None)
            looks.append(stats.diagnostics is not None)
            assert stats.applied
        assert looks == [every == 2 and update % 2 == 1 for update in range(6)]
        trained.append(learner.tensors())
    assert trained[0].keys() == trained[1].keys()
    for name, tensor in trained[0].items():
        assert torch.equal(tensor, trained[1][name]), name


def test_a_method_says_what_it_knows_of_itself() -> None:
    class Talkative(Clear):
        def diagnostics(self) -> dict[str, float]:
            return {"mood": 3.0}

    found = a_learner(Talkative()).update(a_batch(), None).diagnostics
    assert found is not None and found["method"] == {"mood": 3.0}
