"""The two columns: the adaptors change nothing until they are connected; each column is a network of its own."""

from __future__ import annotations

import pytest
import torch

from clearl.methods.progress_compress.two_columns import ACTIVE, KNOWLEDGE_BASE, Adaptor, TwoColumns
from clearl.nets.network import ActorCritic, StepInput, StepOutput, build_network
from clearl.spaces import discrete_spec

SPECS = {
    "mlp": discrete_spec((7,), "float32", 3),
    "minatar": discrete_spec((4, 6, 5), "bool", 6),
    "nature": discrete_spec((1, 36, 40), "uint8", 5, stack=4),
    "impala_shallow": discrete_spec((3, 24, 32), "uint8", 4),
    "impala_deep": discrete_spec((3, 9, 8), "uint8", 4),
}
STEPS, BATCH = 6, 4
CASES = [(torso, lstm) for torso in SPECS for lstm in (False, True)]


def plain(torso: str, lstm: bool, seed: int = 0) -> ActorCritic:
    network = build_network(SPECS[torso], torso=torso, lstm=lstm, lstm_size=5, seed=seed)
    with torch.no_grad():
        network.policy.weight.mul_(100)
    return network


def two_columns(torso: str, lstm: bool) -> TwoColumns:
    return TwoColumns(plain(torso, lstm), plain(torso, lstm), seed=3)


def random_inputs(torso: str) -> StepInput:
    spec, rng = SPECS[torso], torch.Generator().manual_seed(0)
    shape, dtype = (STEPS, BATCH, *spec.observation.shapes[""]), spec.observation.frame_dtype.name
    high = {"uint8": 256, "bool": 2, "float32": 3}[dtype]
    first = torch.rand(STEPS, BATCH, generator=rng) < 0.2
    last_action = torch.randint(spec.action.choices[0], (STEPS, BATCH), generator=rng)
    observation = torch.randint(high, shape, generator=rng).to(getattr(torch, dtype))
    return StepInput(observation, last_action, torch.randn(STEPS, BATCH, generator=rng), first)


def a_state(size: int) -> torch.Tensor:
    return torch.randn(BATCH, size, generator=torch.Generator().manual_seed(5))


def stepped(network: TwoColumns, inputs: StepInput, state: torch.Tensor, column: str) -> StepOutput:
    outputs = []
    for t in range(STEPS):
        outputs.append(network.act(StepInput(*(part[t] for part in inputs)), state, column=column))
        state = outputs[-1].state
    return StepOutput(torch.stack([o.policy for o in outputs]), torch.stack([o.value for o in outputs]), state)


@pytest.mark.parametrize(("torso", "lstm"), CASES)
def test_before_it_is_connected_the_active_column_is_the_plain_network(torso: str, lstm: bool) -> None:
    network, alone, inputs = two_columns(torso, lstm), plain(torso, lstm), random_inputs(torso)
    state = a_state(network.core_size)
    output, expected = network.unroll(inputs, state), alone.unroll(inputs, state[:, : alone.core_size])
    assert torch.equal(output.policy, expected.policy) and torch.equal(output.value, expected.value)
    assert torch.equal(output.state[:, : alone.core_size], expected.state)
    assert network.evaluated_columns(in_training=True) == ("active",)


@pytest.mark.parametrize(("torso", "lstm"), CASES)
def test_acting_and_unrolling_agree_once_connected(torso: str, lstm: bool) -> None:
    network, inputs = two_columns(torso, lstm), random_inputs(torso)
    before = network.unroll(inputs, a_state(network.core_size))
    network.connect()
    unrolled = network.unroll(inputs, a_state(network.core_size))
    assert not torch.allclose(before.policy, unrolled.policy, atol=1e-4)
    assert not torch.allclose(before.value, unrolled.value, atol=1e-4)
    for ours, theirs in zip(unrolled, stepped(network, inputs, a_state(network.core_size), "act"), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("torso", "lstm"), CASES)
def test_evaluation_is_the_knowledge_base_alone_once_compressed(torso: str, lstm: bool) -> None:
    network, inputs = two_columns(torso, lstm), random_inputs(torso)
    state = a_state(network.core_size)
    active = stepped(network, inputs, state, "act")
    torch.testing.assert_close(stepped(network, inputs, state, "evaluate").policy, active.policy, rtol=0, atol=0)
    network.train_column(KNOWLEDGE_BASE)
    assert network.evaluated_columns(in_training=False) == ("knowledge_base",)
    assert network.evaluated_columns(in_training=True) == ("knowledge_base", "active")
    network.train_column(ACTIVE)
    assert network.evaluated_columns(in_training=False) == ("knowledge_base",)
    assert network.evaluated_columns(in_training=True) == ("active", "knowledge_base")
    expected = network.knowledge_base.unroll(inputs, network.knowledge_state(state))
    for output in (stepped(network, inputs, state, "evaluate"), network.unroll_both(inputs, state)[1]):
        torch.testing.assert_close(output.policy, expected.policy, rtol=1e-5, atol=1e-5)
        assert output.value.isnan().all()  # nobody trains it
        torch.testing.assert_close(network.knowledge_state(output.state), expected.state, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(expected.policy, active.policy, atol=1e-4)


@pytest.mark.parametrize(("torso", "lstm"), CASES)
def test_gradients_reach_exactly_the_column_in_training(torso: str, lstm: bool) -> None:
    network, inputs = two_columns(torso, lstm), random_inputs(torso)
    network.connect()
    state = a_state(network.core_size)
    output = network.unroll(inputs, state)
    (output.policy.square().sum() + output.value.square().sum()).backward()
    for name, p in network.named_parameters():
        assert (p.grad is None) == name.startswith("knowledge_base"), name
        assert p.grad is None or p.grad.abs().sum() > 0, name
    network.zero_grad(set_to_none=True)
    network.train_column("knowledge_base")
    active, knowledge = network.unroll_both(inputs, state)
    assert not active.policy.requires_grad and not active.value.requires_grad
    knowledge.policy.square().sum().backward()
    for name, p in network.named_parameters():
        trained = name.startswith("knowledge_base") and not name.startswith("knowledge_base.value")
        assert (p.grad is not None) == trained, name


def test_acting_never_reaches_the_knowledge_base() -> None:
    network, inputs = two_columns("minatar", True), random_inputs("minatar")
    network.connect()
    network.train_column("knowledge_base")
    assert not network.unroll(inputs, a_state(network.core_size)).policy.requires_grad


def test_gates_begin_between_0_and_a_tenth() -> None:
    adaptors = [part for part in two_columns("nature", True).modules() if isinstance(part, Adaptor)]
    assert len(adaptors) == 3 + 2  # into two convolutions, the dense layer, the policy and the value
    gates = torch.cat([adaptor.gate.detach() for adaptor in adaptors])
    assert gates.min() >= 0 and gates.max() <= 0.1 and 0.04 < gates.mean() < 0.06


def test_a_restart_renews_the_active_column_and_the_adaptors_only() -> None:
    network = two_columns("minatar", True)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    network.restart_active(visit=1)
    assert torch.equal(torch.get_rng_state(), state)
    for name, p in network.named_parameters():
        same = name.startswith("knowledge_base") or name.endswith("bias")
        assert torch.equal(before[name], p) == same, name
    again = two_columns("minatar", True)
    again.restart_active(visit=1)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


def test_flags_travel_in_the_state_dict() -> None:
    one, two = two_columns("mlp", False), two_columns("mlp", False)
    one.connect()
    one.train_column(KNOWLEDGE_BASE)
    two.load_state_dict(one.state_dict())
    assert two.evaluated_columns(in_training=False) == ("knowledge_base",)
    inputs = random_inputs("mlp")
    assert torch.equal(one.unroll(inputs, a_state(0)).policy, two.unroll(inputs, a_state(0)).policy)
