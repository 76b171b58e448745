"""Scaled returns: statistics of what is new, raw numbers in unrolls and replay, one unit in the losses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from whole_runs import contents, shards

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.experiment import run
from clearl.learning.learner import Learner
from clearl.learning.return_scale import discounted_returns
from clearl.methods import make_method
from clearl.methods.clear import Clear
from clearl.nets.network import ActorCritic, PolicyNetwork, ScalesReturns, StepInput, build_network
from clearl.testing.methods import SPEC, a_batch, a_learner
from clearl.types import Batch


def literal_return(batch: Batch, t: int, b: int) -> float:
    """The sum written out: rewards until the episode or the unroll ends, or until a step that was ignored."""
    total, weight = 0.0, 1.0
    for s in range(t, len(batch.reward)):
        if not batch.valid[s, b]:
            return total + weight * float(batch.behaviour_value[s, b])
        total += weight * float(batch.reward[s, b])
        weight *= float(batch.discount[s, b])
    return total + weight * float(batch.behaviour_value[-1, b])


def with_deaths(batch: Batch) -> Batch:
    died = torch.rand(batch.reward.shape, generator=torch.Generator().manual_seed(1)) < 0.2
    return replace(batch, discount=batch.discount.masked_fill(died, 0.0))


def test_returns_are_the_literal_sums() -> None:
    batch = with_deaths(a_batch(0, 5, 0.5))
    expected = [[literal_return(batch, t, b) for b in range(batch.reward.shape[1])] for t in range(len(batch.reward))]
    torch.testing.assert_close(discounted_returns(batch), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def returns_of(network: PolicyNetwork) -> dict[str, float]:
    assert isinstance(network, ActorCritic) and network.returns is not None
    return {name: float(tensor) for name, tensor in network.returns.state_dict().items()}


def scale_of(network: PolicyNetwork) -> float:
    assert isinstance(network, ScalesReturns)
    return float(network.return_scale())


def scaled_learner(method: str = "clear", **settings) -> Learner:
    return a_learner(method, False, scale_returns=True, **settings)


def test_the_scale_is_the_deviation_of_all_new_returns_and_of_no_replayed_one() -> None:
    learner, seen = scaled_learner(), []
    for seed in range(4):
        batch = with_deaths(a_batch(0, seed, 0.5))
        batch = replace(batch, reward=batch.reward * 30 - 10)
        for t, b in (batch.valid & ~batch.is_replay).nonzero().tolist():
            seen.append(literal_return(batch, t, b))
        learner.update(batch, None)
    expected = {"mean": np.mean(seen), "variance": np.var(seen), "count": len(seen)}
    assert returns_of(learner.network) == pytest.approx(expected, rel=1e-5)
    assert scale_of(learner.network) == pytest.approx(np.std(seen), rel=1e-5)


def test_one_update_is_that_of_a_batch_which_was_divided_by_hand() -> None:
    learner, plain = scaled_learner(), a_learner("clear", False)
    batch = a_batch(0, 3, 0.5)
    batch = replace(batch, reward=batch.reward * 50, behaviour_value=batch.behaviour_value * 50)
    chosen = (batch.valid & ~batch.is_replay).nonzero().tolist()
    scale = float(np.std([literal_return(batch, t, b) for t, b in chosen]))
    found = learner.update(batch, None).loss
    divided = replace(batch, reward=batch.reward / scale, behaviour_value=batch.behaviour_value / scale)
    assert found == pytest.approx(plain.update(divided, None).loss, rel=1e-4)


def network_of_scale(scale: float, lstm: bool) -> ActorCritic:
    network = build_network(SPEC, torso="mlp", lstm=lstm, lstm_size=5, seed=1, scale_returns=True)
    network.observe_returns(torch.tensor([-scale, scale]))
    return network


@pytest.mark.parametrize("lstm", [False, True])
def test_acting_gives_values_as_rewards_are_so_that_cloning_compares_them_in_one_unit(lstm: bool) -> None:
    network, batch = network_of_scale(40.0, lstm), a_batch(10 if lstm else 0, 7, 1.0)
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    state, values = batch.core_state, []
    with torch.no_grad():
        for t in range(len(batch.reward)):
            acted = network.act(StepInput(*(part[t] for part in inputs)), state)
            values.append(acted.value)
            state = acted.state
        unrolled = network.unroll(inputs, batch.core_state).value[:-1]
    torch.testing.assert_close(torch.stack(values), 40 * unrolled, rtol=1e-4, atol=1e-4)
    learner = Learner(
        network=network, method=Clear(), config=RunConfig(torso="mlp", scale_returns=True), batch_frames=1,
        total_frames=None,
    )  # fmt: skip
    stats = learner.update(replace(batch, behaviour_value=torch.stack(values)), None)
    assert stats.loss["value_cloning"] == pytest.approx(0, abs=1e-8)
    assert returns_of(network)["count"] == 2, "replay was counted when it was new"


def test_a_core_sees_the_last_reward_in_the_same_unit() -> None:
    small, large = network_of_scale(1.0, True), network_of_scale(40.0, True)
    batch = a_batch(10, 7, 1.0)
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    with torch.no_grad():
        expected = small.unroll(inputs, batch.core_state).policy
        found = large.unroll(inputs._replace(last_reward=40 * batch.last_reward), batch.core_state).policy
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reward", [0.0, 3.0])
def test_a_stream_without_deviation_is_learnt_from_with_finite_numbers(reward: float) -> None:
    learner = scaled_learner()
    for seed in range(20):
        batch = a_batch(0, seed, 0.5)
        constant = torch.full_like(batch.reward, reward)
        worth = torch.full_like(constant, reward / (1 - 0.9))
        stats = learner.update(replace(batch, reward=constant, behaviour_value=worth), None)
        assert stats.applied and all(np.isfinite(value) for value in stats.loss.values())
    assert scale_of(learner.network) == pytest.approx(0.01)


def test_a_bad_number_does_not_stay_in_the_statistics() -> None:
    learner, batch = scaled_learner(), a_batch(0, 0, 0.5)
    batch.reward[2, -1] = float("nan")
    learner.update(batch, None)
    assert all(map(np.isfinite, returns_of(learner.network).values()))


def test_what_would_never_learn_a_scale_is_refused() -> None:
    with pytest.raises(ConfigError, match="replay_fraction 1 leaves none"):
        scaled_learner(replay_fraction=1.0)
    config = RunConfig(scale_returns=True)
    with pytest.raises(ConfigError, match="needs a network with observe_returns"):
        Learner(
            network=torch.nn.Linear(1, 1),  # pyright: ignore[reportArgumentType]  # not one of ours
            method=make_method(config), config=config, batch_frames=1, total_frames=None,
        )  # fmt: skip


def test_replay_holds_rewards_and_observations_as_the_environment_gave_them(tmp_path: Path) -> None:
    config = RunConfig(
        suite="gym:Pendulum-v1", runtime="inline", slots=2, batch_unrolls=2, unroll_steps=10, frames_per_visit=200,
        eval_every_frames=1000, eval_episodes=1, eval_max_steps=3, buffer_frames=200, replay_store="disk",
        scale_returns=True, normalise_observations=True,
    )  # fmt: skip
    run(config, tmp_path / "run", console=False)
    checked = 0
    for shard in shards(tmp_path / "run", config):
        for unroll in contents(shard).values():
            cos, sin, speed = unroll.frames[:-1].T
            np.testing.assert_allclose(cos**2 + sin**2, 1, rtol=1e-5)
            torque = 2 * np.tanh(unroll.action[:, 0])
            expected = -(np.arctan2(sin, cos) ** 2 + 0.1 * speed**2 + 0.001 * torque**2)
            np.testing.assert_allclose(unroll.reward[unroll.valid], expected[unroll.valid], rtol=1e-3, atol=1e-3)
            checked += int(unroll.valid.sum())
        shard.close()
    assert checked > 50
