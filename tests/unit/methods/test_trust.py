"""Trust in replay: the formula against a literal reference; it falls where the world changed, and only there."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from clearl.acting.preprocess import as_tensor
from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.methods import make_method
from clearl.methods.clear import Clear
from clearl.methods.trust import Trust, balanced, comparable, features, initial_parameters, log_odds_of, trust_of
from clearl.nets.network import ActorCritic, build_network
from clearl.spaces import ActionSpec, ObservationSpec, PartSpec, TaskSpec, discrete_spec
from clearl.testing.methods import a_batch, a_learner, train
from clearl.types import Batch

STEPS, UNROLLS, ACTIONS = 10, 24, 4
BOX = discrete_spec((2,), "float32", ACTIONS)
RECORD = TaskSpec(
    ObservationSpec({"one": PartSpec((1,), "bool"), "place": PartSpec((1,), "float32")}, mask_size=ACTIONS),
    ActionSpec.discrete(ACTIONS),
)


def a_network(spec: TaskSpec = BOX, **settings: Any) -> ActorCritic:
    return build_network(spec, **{"torso": "mlp", "lstm": False, "lstm_size": 1, "seed": 0, **settings})


def test_trust_is_the_mean_evidence_through_an_exponential() -> None:
    generator = torch.Generator().manual_seed(1)
    seen, world = torch.randn(2, 5, 4, generator=generator)
    steps = (torch.rand(5, 4, generator=generator) < 0.7).float()
    steps[:, 3] = 0
    for slope in (0.0, 0.5, 5.0):
        expected = []
        for b in range(4):
            familiar = [min(1.0, 2 / (1 + math.exp(-float(seen[t, b])))) for t in range(5)]
            counted = [familiar[t] * float(world[t, b]) for t in range(5) if steps[t, b]]
            mean = sum(counted) / len(counted) if counted else 0.0
            expected.append(math.exp(min(0.0, slope * mean)))
        assert trust_of(seen, world, steps, slope).tolist() == pytest.approx(expected, rel=1e-5)


def test_both_classes_weigh_the_same_and_other_episodes_are_not_compared() -> None:
    batch = a_batch(0, 3, 0.5)
    steps = comparable(batch)
    for t in range(batch.valid.shape[0]):
        for b in range(batch.valid.shape[1]):
            assert bool(steps[t, b]) == (bool(batch.valid[t, b]) and not bool(batch.first[t + 1, b]))
    weights = balanced(batch.is_replay, steps)
    assert float(weights[:, batch.is_replay].sum()) == pytest.approx(0.5)
    assert float(weights[:, ~batch.is_replay].sum()) == pytest.approx(0.5)


def walk(update: int, *, old_sign: float, old_place: float = 0.0) -> Batch:
    """A point that its actions move; in the replayed half they move it by `old_sign` times as much."""
    generator = torch.Generator().manual_seed(update)
    template = a_batch(0, update, 0.5)
    is_replay = torch.arange(UNROLLS) >= UNROLLS // 2
    action = torch.randint(ACTIONS, (STEPS, UNROLLS), generator=generator)
    move = (action.float() - 1.5) * torch.where(is_replay, old_sign, 1.0)
    start = torch.randn(1, UNROLLS, generator=generator) + torch.where(is_replay, old_place, 0.0)
    place = torch.cat([start, start + move.cumsum(0)])
    observation = torch.stack([place, torch.ones_like(place)], -1)
    false = torch.zeros(STEPS + 1, UNROLLS, dtype=torch.bool)
    policy = torch.zeros(STEPS, UNROLLS, ACTIONS)
    return replace(
        template, observation=observation, action=action, first=false, valid=~false[1:], is_replay=is_replay,
        behaviour_policy=policy,
    )  # fmt: skip


def in_records(batch: Batch) -> Batch:
    """The same observations as records of two parts and a mask."""
    records = np.zeros(batch.first.shape, RECORD.observation.record_dtype)
    records["place"], records["one"] = batch.observation[..., :1].numpy(), batch.observation[..., 1:].numpy()
    return replace(batch, observation=as_tensor(records))


def trust_after(updates: int, *, spec: TaskSpec = BOX, **world: Any) -> torch.Tensor:
    """The trust in replayed unrolls once the classifiers have seen so many batches."""
    method, network = Trust(Clear(), rate=0.01), a_network(spec)

    def made(update: int) -> Batch:
        return in_records(walk(update, **world)) if spec is RECORD else walk(update, **world)

    method._parameters = initial_parameters(features(network, made(0)))
    for update in range(updates):
        method._train(network, made(update))
    batch = made(10_000)
    found = log_odds_of(method._parameters, features(network, batch))
    trust = trust_of(found["seen"], found["world"], comparable(batch), method.slope)
    return trust[batch.is_replay]


def test_trust_falls_where_actions_changed_their_meaning() -> None:
    assert trust_after(0, old_sign=-1.0).tolist() == [1.0] * (UNROLLS // 2), "all is trusted before there is evidence"
    assert float(trust_after(300, old_sign=-1.0).mean()) < 0.2


def test_trust_stays_where_the_world_is_the_same() -> None:
    assert float(trust_after(300, old_sign=1.0).mean()) > 0.8


def test_trust_stays_in_tasks_that_are_not_seen_now() -> None:
    """Elsewhere another rule holds: that is another task, told by where it is, and must not be distrusted."""
    assert float(trust_after(300, old_sign=-1.0, old_place=60.0).mean()) > 0.8


@pytest.mark.parametrize("updates", [0, 100])
def test_records_are_read_as_the_numbers_that_they_hold(updates: int) -> None:
    """A network joins real numbers first: here in the same order as those of the box."""
    expected, found = (trust_after(updates, spec=spec, old_sign=-1.0) for spec in (BOX, RECORD))
    assert torch.equal(found, expected)


def test_classifiers_see_what_the_network_sees() -> None:
    """Normalised numbers, bytes within 1, and actions one-hot or squashed."""
    network = a_network(discrete_spec((2,), "float32", ACTIONS), normalise=True)
    batch = walk(0, old_sign=1.0)
    large = replace(batch, observation=batch.observation * 1000)
    network.observe(large.observation.flatten(0, 1))
    seen = features(network, large)["seen"]
    assert 0.5 < float(seen[..., 0].std()) < 1.5
    pixels = replace(batch, observation=torch.full((STEPS + 1, UNROLLS, 1, 4, 4), 255, dtype=torch.uint8))
    images = a_network(discrete_spec((1, 4, 4), "uint8", ACTIONS))
    assert torch.equal(features(images, pixels)["seen"], torch.ones(STEPS, UNROLLS, 16))
    both = a_network(TaskSpec(BOX.observation, ActionSpec((2, 3), (True,))))
    action = torch.tensor([1.0, 2.0, 50.0]).expand(STEPS, UNROLLS, 3)
    done = features(both, replace(batch, action=action))["done"]
    assert done[0, 0, 2:].tolist() == [0, 1, 0, 0, 1, 1]


def test_a_network_that_does_not_tell_what_it_sees_is_refused() -> None:
    class Silent(torch.nn.Module):
        core_size = 0

    with pytest.raises(ConfigError, match=r"trust needs a network with numbers\(observation\), which Silent has not"):
        Trust(Clear()).build_network(Silent)  # pyright: ignore[reportArgumentType]  # a part of the seam is enough


class Seen(Clear):
    """Writes down what it is given."""

    batches: list[Batch] = []  # noqa: RUF012 - one test reads it

    def losses(self, network: Any, batch: Batch) -> dict[str, torch.Tensor]:
        Seen.batches.append(batch)
        return super().losses(network, batch)


@pytest.mark.parametrize("scope", ["cloning", "replay"])
def test_a_distrusted_unroll_loses_its_weight(scope: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = a_learner("trust+clear", False)
    batch = a_batch(0, 3, 0.5)
    method = Trust(Seen(), scope=scope)
    given = torch.where(torch.arange(len(batch.is_replay)) % 2 == 0, 0.25, 0.75)
    monkeypatch.setattr("clearl.methods.trust.trust_of", lambda *_: given)
    Seen.batches.clear()
    method.losses(learner.network, batch)
    (seen,) = Seen.batches
    assert torch.equal(seen.is_replay, batch.is_replay.float() * given)
    left_out = batch.is_replay & (given < 0.5)
    expected = batch.valid & ~left_out if scope == "replay" else batch.valid
    assert left_out.any() and torch.equal(seen.valid, expected)


def test_a_slope_of_0_is_clear_bit_for_bit() -> None:
    one, two = a_learner("clear", False), a_learner("trust+clear", False, trust_slope=0.0)
    for learner in (one, two):
        train(learner, range(6))
    named = two.tensors()
    assert all(
        torch.equal(tensor, named[name]) for name, tensor in one.tensors().items() if name.startswith("network/")
    )


def test_settings_reach_the_method() -> None:
    method = make_method(RunConfig(method="trust+clear", trust_slope=2.0, trust_rate=0.5, trust_scope="cloning"))
    assert isinstance(method, Trust) and (method.slope, method.rate, method.scope) == (2.0, 0.5, "cloning")
