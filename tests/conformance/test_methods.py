"""What every method must do, and every combination of methods: tested the day that it is registered."""

from __future__ import annotations

import json
import math
import re

import pytest
import torch

from clearl.config import RunConfig
from clearl.learning.learner import Learner
from clearl.methods import make_method, method_spellings
from clearl.methods.method import layers
from clearl.nets.network import StepInput, as_module, build_network
from clearl.spaces import discrete_spec
from clearl.types import Batch, Visit

SPEC = discrete_spec((4,), "float32", 4)
STEPS, COLUMNS, BATCH_FRAMES, VISIT_UPDATES = 5, 6, 30, 8
NAMES = method_spellings()
CASES = pytest.mark.parametrize(("name", "lstm"), [(name, lstm) for name in NAMES for lstm in (False, True)])


def a_batch(core_size: int, seed: int, replay_fraction: float) -> Batch:
    """Two tasks with two actions each, in turns; a masked action is in none of them."""
    rng = torch.Generator().manual_seed(seed)
    shape, allowed = (STEPS, COLUMNS), torch.arange(COLUMNS) % 2
    mask = torch.zeros(COLUMNS, 4, dtype=torch.bool)
    mask[torch.arange(COLUMNS), allowed] = mask[torch.arange(COLUMNS), allowed + 2] = True
    return Batch(
        observation=torch.randn(STEPS + 1, COLUMNS, 4, generator=rng),
        first=torch.rand(STEPS + 1, COLUMNS, generator=rng) < 0.2,
        last_action=torch.randint(4, (STEPS + 1, COLUMNS), generator=rng),
        last_reward=torch.randn(STEPS + 1, COLUMNS, generator=rng),
        core_state=torch.randn(COLUMNS, core_size, generator=rng),
        action=allowed + 2 * torch.randint(2, shape, generator=rng),
        reward=torch.randn(shape, generator=rng),
        discount=torch.full(shape, 0.9),
        valid=torch.rand(shape, generator=rng) < 0.9,
        mask=mask,
        behaviour_policy=torch.randn(*shape, 4, generator=rng),
        behaviour_value=torch.randn(shape, generator=rng),
        is_replay=torch.arange(COLUMNS) < round(replay_fraction * COLUMNS),
    )


def a_learner(name: str, lstm: bool) -> Learner:
    config = RunConfig(method=name, torso="mlp", lstm=lstm, lstm_size=5, fisher_batches=3)
    method = make_method(config)
    network = method.build_network(lambda: build_network(SPEC, torso="mlp", lstm=lstm, lstm_size=5, seed=1))
    return Learner(network=network, method=method, config=config, batch_frames=BATCH_FRAMES, total_frames=None)


def train(learner: Learner, updates: range) -> None:
    for update in updates:
        index, frames = update // VISIT_UPDATES, VISIT_UPDATES * BATCH_FRAMES
        visit = Visit(index, ("ab"[index % 2],), update * BATCH_FRAMES, index * frames, (index + 1) * frames)
        batch = a_batch(learner.network.core_size, update, learner.method.replay_fraction)
        stats = learner.update(batch, visit if learner.method.needs_boundaries else None)
        assert stats.applied
        assert stats.loss.keys() == learner.method.weights().keys()
        assert all(math.isfinite(value) for value in stats.loss.values())


def assert_same(one: Learner, two: Learner) -> None:
    assert json.dumps(one.state()) == json.dumps(two.state())
    tensors = two.tensors()
    assert one.tensors().keys() == tensors.keys()
    for name, tensor in one.tensors().items():
        assert torch.equal(tensor, tensors[name]), name


@CASES
def test_trains_over_several_visits_the_same_twice_without_outside_randomness(name: str, lstm: bool) -> None:
    one, two = a_learner(name, lstm), a_learner(name, lstm)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(one, range(3 * VISIT_UPDATES))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    train(two, range(3 * VISIT_UPDATES))
    assert_same(one, two)


@CASES
@pytest.mark.parametrize("updates", [VISIT_UPDATES - 1, VISIT_UPDATES + 3])
def test_comes_back_from_its_state_bit_for_bit(name: str, lstm: bool, updates: int) -> None:
    one, two = a_learner(name, lstm), a_learner(name, lstm)
    train(one, range(updates))
    state = json.loads(json.dumps(one.state()))
    two.restore({key: tensor.clone() for key, tensor in one.tensors().items()}, state)
    for learner in (one, two):
        train(learner, range(updates, 2 * VISIT_UPDATES + 2))
    assert_same(one, two)


@CASES
@torch.no_grad()
def test_its_network_acts_as_it_unrolls_and_never_outside_the_mask(name: str, lstm: bool) -> None:
    learner = a_learner(name, lstm)
    with torch.enable_grad():
        train(learner, range(VISIT_UPDATES + 2))
    network, batch = learner.network, a_batch(learner.network.core_size, 99, 0.0)
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    unrolled, state = network.unroll(inputs, batch.core_state), batch.core_state
    for t in range(STEPS + 1):
        acted = network.act(StepInput(*(part[t] for part in inputs)), state)
        evaluated = network.act(StepInput(*(part[t] for part in inputs)), state, column="evaluate")
        state = acted.state
        torch.testing.assert_close(acted.policy, unrolled.policy[t], rtol=1e-5, atol=1e-5)
        assert evaluated.policy.shape == acted.policy.shape and evaluated.state.shape == state.shape
        action = network.head.distribution(evaluated.policy, batch.mask).sample(torch.rand(COLUMNS))
        assert batch.mask[torch.arange(COLUMNS), action].all()
    torch.testing.assert_close(state, unrolled.state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name: str) -> None:
    method = make_method(RunConfig(method=name))
    for layer in layers(method):
        assert layer.label, f"{type(layer).__name__} needs a label for reports"
        assert layer.colour == "" or re.fullmatch("#[0-9a-f]{6}", layer.colour)
        assert layer.replay_fraction == method.replay_fraction, "a wrapper replays what its base replays"
    assert method.needs_boundaries == any(type(layer).needs_boundaries for layer in layers(method))
    assert 0 <= method.replay_fraction <= 1
    assert all(math.isfinite(weight) for weight in method.weights().values())
    assert all(math.isfinite(number) for number in method.diagnostics().values())


@pytest.mark.parametrize("name", NAMES)
def test_is_told_of_visits_only_if_it_needs_them(name: str) -> None:
    learner = a_learner(name, lstm=False)
    if not learner.method.needs_boundaries:
        visit = Visit(0, ("a",), 0, 0, 1000)
        with pytest.raises(AssertionError):
            layers(learner.method)[-1].visit(learner.network, visit)


@CASES
def test_a_network_built_again_takes_over_the_weights(name: str, lstm: bool) -> None:
    """Workers build their own network and are sent the state dict, which must be all there is to it."""
    learner, other = a_learner(name, lstm), a_learner(name, lstm)
    train(learner, range(VISIT_UPDATES + 2))
    as_module(other.network).load_state_dict(as_module(learner.network).state_dict())
    batch = a_batch(learner.network.core_size, 99, 0.0)
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    one, two = (network.unroll(inputs, batch.core_state) for network in (learner.network, other.network))
    assert torch.equal(one.policy, two.policy)
    for in_training in (False, True):
        columns = [each.network.evaluated_columns(in_training=in_training) for each in (learner, other)]
        assert columns[0] == columns[1]
