"""The Fisher information: against its closed form, step by step, from the right experience."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from clearl.errors import ConfigError
from clearl.methods import fisher
from clearl.methods.fisher import diagonal_fisher
from clearl.methods.fisher_memory import STEPS_PER_UNROLL, FisherMemory, Windows
from clearl.nets.heads import make_head
from clearl.nets.heads.categorical import MaskedCategorical
from clearl.nets.network import StepInput, StepOutput, as_module, build_network
from clearl.nets.stages import Dense
from clearl.spaces import ActionSpec, discrete_spec

IMAGES = discrete_spec((2, 6, 5), "bool", 4)


class SoftmaxLinear(nn.Module):
    """pi = softmax(W x + b): the one policy whose Fisher can be written down."""

    core_size = 0

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.policy, self.head = nn.Linear(inputs, actions), make_head(ActionSpec.discrete(actions))

    def unroll(self, inputs: StepInput, state: torch.Tensor) -> StepOutput:
        return StepOutput(self.policy(inputs.observation), inputs.observation[..., 0], state)

    def act(self, inputs: StepInput, state: torch.Tensor, *, column: str = "act") -> StepOutput:
        return self.unroll(inputs, state)

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        return ("",)


def single_steps(observation: torch.Tensor, mask: torch.Tensor) -> Windows:
    count = len(observation)
    return {
        "observation": observation.unsqueeze(1),
        "last_action": torch.zeros(count, 1, dtype=torch.int64),
        "last_reward": torch.zeros(count, 1),
        "first": torch.zeros(count, 1, dtype=torch.bool),
        "valid": torch.ones(count, 1, dtype=torch.bool),
        "mask": mask.expand(count, -1),
        "core_state": torch.zeros(count, 0),
    }


@pytest.mark.parametrize("mask", [[True, True, True], [True, False, True]])
@pytest.mark.parametrize("copies", [8_000, 16_000])
def test_softmax_linear_policy_against_the_closed_form(mask: list[bool], copies: int) -> None:
    torch.manual_seed(0)
    network, states = SoftmaxLinear(4, 3), torch.randn(5, 4)
    with torch.no_grad():
        probs = MaskedCategorical(network.policy(states), torch.tensor(mask)).probs  # [5, 3]
    # d log pi(a) / d W_ij = (1[a = i] - pi_i) x_j, and a bernoulli of mean pi_i has the variance pi_i (1 - pi_i).
    variance = probs * (1 - probs)
    weight = (variance[:, :, None] * states[:, None, :].square()).mean(0)
    windows = single_steps(states.repeat(copies // 5, 1), torch.tensor(mask))
    estimated = diagonal_fisher(network, windows, np.random.default_rng(0))
    torch.testing.assert_close(estimated["policy.weight"], weight, rtol=0.05, atol=1e-3)
    torch.testing.assert_close(estimated["policy.bias"], variance.mean(0), rtol=0.05, atol=1e-3)
    if not all(mask):
        assert (estimated["policy.weight"][1] == 0).all()


@pytest.mark.parametrize(("torso", "side"), [("mlp", 6), ("minatar", 6), ("impala_deep", 9)])
def test_both_ways_of_summing_agree(torso: str, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = discrete_spec((2, side, side), "uint8", 4)
    network = build_network(spec, torso=torso, lstm=False, lstm_size=0, seed=0)
    observation = torch.randint(255, (7, 2, side, side), dtype=torch.uint8)
    windows = single_steps(observation, torch.tensor([True, True, False, True]))
    windows["valid"][3] = False
    by_layers = diagonal_fisher(network, windows, np.random.default_rng(1))
    monkeypatch.setattr(fisher, "_in_layers", lambda module: False)
    by_steps = diagonal_fisher(network, windows, np.random.default_rng(1))
    assert sum(part.sum() for part in by_steps.values()) > 0
    for name, part in by_steps.items():
        torch.testing.assert_close(by_layers[name], part, rtol=1e-4, atol=1e-9)
    assert not by_layers["value.weight"].any()


class Bypassing(Dense):
    """Uses its parameters without calling its layer, which hooks do not see."""

    def forward(self, hidden: torch.Tensor, lateral: torch.Tensor | None = None) -> torch.Tensor:
        return functional.linear(hidden.flatten(1), self.linear.weight, self.linear.bias).relu()


@pytest.mark.parametrize("layer", [Dense, Bypassing])
def test_a_layer_narrower_than_a_chunk_of_steps_has_its_fisher(
    layer: type[Dense], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearl.nets.torsos.mlp", lambda shape: [layer(shape, 8), layer((8,), 8)])
    network = build_network(discrete_spec((5,), "float32", 4), torso="mlp", lstm=False, lstm_size=0, seed=0)
    windows = single_steps(torch.randn(40, 5), torch.ones(4, dtype=torch.bool))
    estimated = diagonal_fisher(network, windows, np.random.default_rng(1))
    monkeypatch.setattr(fisher, "_in_layers", lambda module: False)
    by_steps = diagonal_fisher(network, windows, np.random.default_rng(1))
    assert by_steps["torso.stages.0.linear.weight"].any()
    for name, part in by_steps.items():
        torch.testing.assert_close(estimated[name], part, rtol=1e-4, atol=1e-9)


def test_through_a_memory_every_step_is_squared_by_itself(a_batch, monkeypatch: pytest.MonkeyPatch) -> None:
    network = build_network(IMAGES, torso="minatar", lstm=True, lstm_size=6, seed=0)
    batch = a_batch(IMAGES, steps=STEPS_PER_UNROLL, core_size=network.core_size)
    memory = FisherMemory(batches=2, steps=1, seed=0)
    memory.add(batch, visit=0)
    windows = memory.windows()
    windows["valid"][0, 1] = False
    # With the likeliest action instead of a sampled one, the estimate can be written out.
    monkeypatch.setattr(MaskedCategorical, "sample", lambda self, uniform: self.log_probs.argmax(-1))
    estimated = diagonal_fisher(network, windows, np.random.default_rng(0))
    expected = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    for t in windows["valid"][0].nonzero().flatten().tolist():
        inputs = StepInput(*(windows[name][0, : t + 1].unsqueeze(1) for name in StepInput._fields))
        output = network.unroll(inputs, windows["core_state"])
        log_prob = MaskedCategorical(output.policy[-1, 0], windows["mask"][0]).log_probs.max()
        network.zero_grad()
        log_prob.backward()
        for name, p in network.named_parameters():
            expected[name] += 0 if p.grad is None else p.grad.square()
    for name, square in expected.items():
        torch.testing.assert_close(estimated[name], square / (STEPS_PER_UNROLL - 1), rtol=1e-4, atol=1e-9)


def test_a_frozen_network_stays_frozen_and_has_a_fisher() -> None:
    network = SoftmaxLinear(4, 3).requires_grad_(False)
    windows = single_steps(torch.randn(5, 4), torch.ones(3, dtype=torch.bool))
    assert diagonal_fisher(network, windows, np.random.default_rng(0))["policy.weight"].any()
    assert not any(p.requires_grad or p.grad is not None for p in as_module(network).parameters())


@pytest.mark.parametrize("core_size", [0, 3])
def test_only_new_steps_of_the_last_batches_are_kept(a_batch, core_size: int) -> None:
    spec = discrete_spec((3,), "float32", 4)
    memory = FisherMemory(batches=3, steps=16, seed=0)
    for index in range(5):
        batch = a_batch(spec, columns=8, core_size=core_size, seed=index)
        # Each observation says where it is from: batch, time and column.
        batch.observation[..., 0] = index
        batch.observation[..., 1] = torch.arange(6).unsqueeze(1)
        batch.observation[..., 2] = torch.arange(8)
        batch.valid[2] = False
        memory.add(batch, visit=0)
    kept = memory.windows()["observation"]
    batches, times, columns = kept.flatten(0, 1).unbind(-1)
    assert set(batches.tolist()) == {2, 3, 4}
    assert set(columns.tolist()) <= {0, 2, 4, 6} and len(set(columns.tolist())) > 1
    if core_size:
        assert kept.shape == (3 * 1, 5, 3)
        assert kept[:, :, 1].tolist() == [[0, 1, 2, 3, 4]] * 3
        assert torch.equal(memory.windows()["valid"][:, 2], torch.zeros(3, dtype=torch.bool))
    else:
        assert kept.shape == (3 * 16, 1, 3)
        assert 2 not in times.tolist() and len(set(times.tolist())) > 2


def test_memory_is_drawn_from_its_seed_and_comes_back(a_batch) -> None:
    spec = discrete_spec((3,), "float32", 4)
    one, two, other = (FisherMemory(batches=4, steps=4, seed=seed) for seed in (0, 0, 1))
    for memory in (one, two, other):
        for index in range(3):
            memory.add(a_batch(spec, seed=index), visit=1)
    assert torch.equal(one.windows()["observation"], two.windows()["observation"])
    assert not torch.equal(one.windows()["observation"], other.windows()["observation"])
    restored = FisherMemory(batches=4, steps=4, seed=0)
    restored.restore({name: part.clone() for name, part in one.tensors().items()}, one.added)
    for memory in (one, restored):
        memory.add(a_batch(spec, seed=7), visit=1)
        memory.add(a_batch(spec, seed=8), visit=1)
    for name, part in one.windows().items():
        assert torch.equal(part, restored.windows()[name])


def test_nothing_is_kept_where_nothing_is_new(a_batch) -> None:
    batch = a_batch(discrete_spec((3,), "float32", 4))
    memory = FisherMemory(batches=2, steps=4, seed=0)
    memory.add(replace(batch, is_replay=torch.ones(6, dtype=torch.bool)), visit=0)
    assert memory.added == 0 and memory.windows() == {}
    memory.add(batch, visit=0)
    memory.clear()
    assert memory.added == 0 and memory.windows() == {}


def test_sizes_are_checked() -> None:
    with pytest.raises(ConfigError, match="fisher_batches"):
        FisherMemory(batches=0, steps=1, seed=0)
