from __future__ import annotations

import torch
from torch import nn

from clearl.nets.lstm import LstmCore, _Recurrence
from clearl.nets.network import StepInput, build_network
from clearl.spaces import discrete_spec


def core(features: int = 3, actions: int = 2, size: int = 4) -> LstmCore:
    built = LstmCore(features, actions, size)
    built.initialise(torch.Generator().manual_seed(0))
    return built


def test_agrees_with_torchs_lstm_where_nothing_is_reset() -> None:
    ours, theirs = core(), nn.LSTM(3 + 2 + 1, 4)
    order = torch.tensor([0, 1, 3, 2])  # torch has input, forget, candidate, output
    weights = (part.detach().unflatten(0, (4, 4))[order].flatten(0, 1) for part in ours.parameters())
    names = "weight_ih_l0", "weight_hh_l0", "bias_ih_l0"
    theirs.load_state_dict({**dict(zip(names, weights, strict=True)), "bias_hh_l0": torch.zeros(16)})
    steps, batch = 6, 5
    features, state = torch.randn(steps, batch, 3), torch.randn(batch, 8)
    last_action, last_reward = torch.randn(steps, batch, 2), torch.randn(steps, batch)
    outputs, end = ours(features, last_action, last_reward, torch.zeros(steps, batch, dtype=torch.bool), state)
    inputs = torch.cat([features, last_action, last_reward[..., None]], -1)
    hidden, cell = (part[None].contiguous() for part in state.chunk(2, 1))
    expected, (hidden, cell) = theirs(inputs, (hidden, cell))
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(end, torch.cat([hidden[0], cell[0]], 1))


def recurrence_arguments() -> tuple[torch.Tensor, ...]:
    rng = torch.Generator().manual_seed(0)
    steps, batch, size = 4, 3, 2
    shapes = (steps, batch, 4 * size), (4 * size, size), (batch, size), (batch, size)
    tensors = [torch.randn(s, generator=rng, dtype=torch.float64, requires_grad=True) for s in shapes]
    keep = torch.ones(steps, batch, 1, dtype=torch.float64)
    keep[0, 0] = keep[2, 1] = keep[3, 1] = 0
    return (*tensors, keep)


def test_backward_by_hand_is_the_gradient() -> None:
    assert torch.autograd.gradcheck(lambda *a: _Recurrence.apply(*a)[:3], recurrence_arguments())  # type: ignore[index]  # apply is untyped


def test_an_lstm_without_gradients_says_what_it_says_with_them() -> None:
    network = build_network(discrete_spec((3, 10, 10), "bool", 4), torso="minatar", lstm=True, lstm_size=16, seed=1)
    rng = torch.Generator().manual_seed(0)
    inputs = StepInput(
        torch.rand(5, 3, 3, 10, 10, generator=rng) < 0.3,
        torch.randint(0, 4, (5, 3), generator=rng),
        torch.rand(5, 3, generator=rng),
        torch.rand(5, 3, generator=rng) < 0.3,
    )
    state = torch.rand(3, network.core_size, generator=rng)
    with torch.no_grad():
        without = network.unroll(inputs, state)
    for ours, theirs in zip(without, network.unroll(inputs, state), strict=True):
        assert torch.equal(ours, theirs.detach())
