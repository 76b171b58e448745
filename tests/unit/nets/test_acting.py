from __future__ import annotations

import numpy as np
import pytest
import torch

from clearl.nets.acting import arrange_for_acting
from clearl.nets.network import StepInput, build_network
from clearl.nets.weights import FlatWeights
from clearl.types import EnvSpec

SPEC = EnvSpec((3, 10, 10), "bool", 4)


@pytest.mark.parametrize("lstm", [False, True])
def test_a_network_arranged_for_acting_answers_as_before_and_takes_the_learners_weights(lstm: bool) -> None:
    learner, actor = (build_network(SPEC, torso="minatar", lstm=lstm, lstm_size=16, seed=seed) for seed in (1, 2))
    arrange_for_acting(actor)
    assert actor.policy.weight.shape == learner.policy.weight.shape and not actor.policy.weight.is_contiguous()
    read, write = FlatWeights(actor), FlatWeights(learner)
    flat = np.zeros(write.size, np.float32)
    write.write_to(flat)
    read.read_from(flat)
    rows = torch.arange(16)
    inputs = StepInput(
        torch.rand(16, 3, 10, 10, generator=torch.Generator().manual_seed(0)) < 0.3, rows % 4, rows / 16, rows % 3 == 0
    )
    state = torch.linspace(-1, 1, 16 * learner.core_size).reshape(16, learner.core_size)
    with torch.inference_mode():
        for ours, theirs in zip(actor.act(inputs, state), learner.act(inputs, state), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_an_lstm_without_gradients_says_what_it_says_with_them() -> None:
    network = build_network(SPEC, torso="minatar", lstm=True, lstm_size=16, seed=1)
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
