"""Running statistics: those of all values so far, whatever the pieces; raw values in, scaled values out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clearl.nets.heads.gaussian import StdSettings
from clearl.nets.network import StepInput, build_network
from clearl.nets.normalise import Normalise
from clearl.nets.weights import FlatWeights
from clearl.spaces import ActionSpec, ObservationSpec, PartSpec, TaskSpec, discrete_spec


def test_pieces_give_the_statistics_of_the_whole() -> None:
    values = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 50.0, 0.1]) + 7
    normalise = Normalise(3)
    for piece in values.split([1, 399, 600]):
        normalise.observe(piece)
    torch.testing.assert_close(normalise.mean, values.double().mean(0))
    torch.testing.assert_close(normalise.variance, values.double().var(0, unbiased=False))
    scaled = normalise(values)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), rtol=0, atol=1e-4)
    torch.testing.assert_close(scaled.std(0), torch.ones(3), rtol=0.01, atol=0)


def test_nothing_observed_changes_nothing_and_outliers_are_cut() -> None:
    normalise = Normalise(1)
    normalise.observe(torch.zeros(0, 1))
    assert normalise(torch.tensor([[0.5], [99.0]])).tolist() == [[0.5], [10.0]]
    normalise.observe(torch.full((50, 1), 3.0))
    assert normalise(torch.tensor([[3.0]])).item() == 0
    assert torch.isfinite(normalise(torch.tensor([[4.0]]))).all(), "a number that never changed may change one day"


def test_numbers_that_join_later_are_counted_by_themselves() -> None:
    """With the count of the others they would hardly move: 1,000 at 1000 +- 1 among a million at 0."""
    old, new = Normalise(2), Normalise(4)
    old.observe(torch.randn(5000, 2, generator=torch.Generator().manual_seed(0)))
    for name, buffer in new.named_buffers():
        buffer[:2] = getattr(old, name)
    values = torch.randn(1000, 4, generator=torch.Generator().manual_seed(1)) + torch.tensor([0.0, 0.0, 1000.0, 0.0])
    new.observe(values)
    assert new.count.tolist() == [6000, 6000, 1000, 1000]
    torch.testing.assert_close(new.mean[2:], values[:, 2:].double().mean(0))
    assert 0.97 < float(new(values)[:, 2].std()) < 1.03
    whole = torch.cat([torch.randn(5000, 2, generator=torch.Generator().manual_seed(0)), values[:, :2]]).double()
    torch.testing.assert_close(new.variance[:2], whole.var(0, unbiased=False))


def test_one_count_for_all_numbers_can_be_read() -> None:
    normalise = Normalise(2)
    mean, variance = torch.tensor([1.0, 2.0]).double(), torch.tensor([3.0, 4.0]).double()
    normalise.load_state_dict({"mean": mean, "variance": variance, "count": torch.tensor(70.0).double()})
    assert normalise.count.tolist() == [70, 70] and normalise.mean.tolist() == [1, 2]


def inputs(observation: torch.Tensor) -> StepInput:
    steps = observation.shape[:2]
    return StepInput(
        observation, torch.zeros(steps, dtype=torch.int64), torch.zeros(steps), torch.zeros(steps, dtype=torch.bool)
    )


def test_statistics_travel_with_the_weights_and_acting_leaves_them_alone() -> None:
    spec = discrete_spec((2,), "float32", 3)
    learner, actor = (
        build_network(spec, torso="auto", lstm=False, lstm_size=1, seed=seed, normalise=True) for seed in (0, 1)
    )
    observation = 100 + 10 * torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(0))
    learner.observe(observation.flatten(0, 1))
    vector = np.zeros(FlatWeights(learner).size, np.float32)
    FlatWeights(learner).write_to(vector)
    FlatWeights(actor).read_from(vector)
    before = actor.state_dict()["torso.inputs.normalise.mean"].clone()
    with torch.no_grad():
        expected, found = (network.unroll(inputs(observation), torch.zeros(4, 0)) for network in (learner, actor))
    torch.testing.assert_close(found.policy, expected.policy, rtol=1e-3, atol=1e-5)
    assert torch.equal(actor.state_dict()["torso.inputs.normalise.mean"], before)


def test_the_scale_of_returns_travels_with_the_weights() -> None:
    spec = discrete_spec((2,), "float32", 3)
    learner, actor, plain = (
        build_network(spec, torso="auto", lstm=False, lstm_size=1, seed=seed, scale_returns=scaled)
        for seed, scaled in ((0, True), (1, True), (0, False))
    )
    learner.observe_returns(torch.tensor([-30.0, 10.0, 500.0]))
    vector = np.zeros(FlatWeights(learner).size, np.float32)
    FlatWeights(learner).write_to(vector)
    FlatWeights(actor).read_from(vector)
    assert actor.return_scale() == learner.return_scale() and learner.return_scale() > 200
    step = inputs(torch.randn(1, 4, 2, generator=torch.Generator().manual_seed(0))).map(lambda part: part[0])
    with torch.no_grad():
        acted = [network.act(step, torch.zeros(4, 0)).value for network in (learner, actor, plain)]
    torch.testing.assert_close(acted[1], acted[0])
    torch.testing.assert_close(acted[0], acted[2] * learner.return_scale())
    assert not [name for name in plain.state_dict() if "returns" in name] and plain.return_scale() == 1


def test_images_and_one_hot_parts_are_not_normalised() -> None:
    images = build_network(
        discrete_spec((1, 10, 10), "float32", 2), torso="auto", lstm=False, lstm_size=1, seed=0, normalise=True
    )
    assert not [name for name in images.state_dict() if "normalise" in name]
    parts = {"place": PartSpec((6,), "bool"), "speed": PartSpec((2,), "float32")}
    spec = TaskSpec(ObservationSpec(parts), ActionSpec.discrete(2))
    mixed = build_network(spec, torso="auto", lstm=False, lstm_size=1, seed=0, normalise=True)
    assert mixed.state_dict()["torso.inputs.normalise.mean"].shape == (2,)


@pytest.mark.parametrize("source", ["network", "free"])
def test_what_is_kept_for_acting_follows_every_change_of_the_weights(source: str) -> None:
    spec = TaskSpec(ObservationSpec({"": PartSpec((2,), "float32")}), ActionSpec(bounded=(True, True)))
    std = StdSettings(source=source)
    learner, actor = (
        build_network(
            spec, torso="auto", lstm=False, lstm_size=1, seed=seed, std=std, normalise=True, scale_returns=True
        )
        for seed in (0, 1)
    )
    vector, rng = np.zeros(FlatWeights(learner).size, np.float32), torch.Generator().manual_seed(0)
    step = StepInput(torch.randn(4, 2, generator=rng), torch.zeros(4, 2), torch.zeros(4), torch.zeros(4) == 1)
    seen = []
    for _ in range(2):
        learner.observe(5 + 3 * torch.randn(50, 2, generator=rng))
        learner.observe_returns(100 * torch.randn(50, generator=rng))
        with torch.no_grad():
            for parameter in learner.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=rng))
            FlatWeights(learner).write_to(vector)
            FlatWeights(actor).read_from(vector)
            expected, found = (network.act(step, torch.zeros(4, 0)) for network in (learner, actor))
        torch.testing.assert_close(found.policy, expected.policy, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.value, expected.value, rtol=1e-5, atol=1e-5)
        seen.append(found.policy)
    assert not torch.allclose(seen[0], seen[1])
