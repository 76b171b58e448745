"""Statistics of observations in the learner: those of all that is new, once, and of nothing that acts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from policy_cases import make_agent

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.nets.network import StepInput, as_module
from clearl.testing.methods import JOINT, SPEC, UNROLLS, a_batch, a_learner
from clearl.types import Batch

COLUMNS = {"clear": ("torso",), "progress-compress+clear": ("active.torso", "knowledge_base.torso")}


def of_another_scale(batch: Batch) -> Batch:
    return replace(batch, observation=30 * batch.observation - 10)


@pytest.mark.parametrize("method", COLUMNS)
def test_statistics_are_those_of_all_new_observations_and_of_no_replayed_one(method: str) -> None:
    learner, seen = a_learner(method, False, normalise_observations=True), []
    for seed in range(4):
        batch = of_another_scale(a_batch(0, seed, 0.5))
        assert 0 < int(batch.is_replay.sum()) < UNROLLS
        # The last observation of an unroll is the first of the next one.
        seen.append(batch.observation[:-1, ~batch.is_replay].flatten(0, 1).double().numpy())
        learner.update(batch, None)
    expected, state = np.concatenate(seen), as_module(learner.network).state_dict()
    for column in COLUMNS[method]:
        kept = {name: state[f"{column}.inputs.normalise.{name}"].numpy() for name in ("mean", "variance", "count")}
        np.testing.assert_allclose(kept["mean"], expected.mean(0), rtol=1e-6)
        np.testing.assert_allclose(kept["variance"], expected.var(0), rtol=1e-6)
        np.testing.assert_array_equal(kept["count"], np.full(4, len(expected)))


def test_real_numbers_of_records_are_normalised_too() -> None:
    learner, batch = a_learner("clear", False, JOINT, normalise_observations=True), a_batch(0, 1, 0.5, JOINT)
    learner.update(batch, None)
    offset = JOINT.observation.record_dtype.fields["place"][1]  # type: ignore[index]  # a record has fields
    new = batch.observation[:-1, ~batch.is_replay, offset : offset + 12].numpy()
    expected = np.ascontiguousarray(new).view(np.float32).reshape(-1, 3)
    state = as_module(learner.network).state_dict()
    np.testing.assert_allclose(state["torso.inputs.normalise.mean"].numpy(), expected.mean(0, np.float64), rtol=1e-5)


def test_acting_and_evaluation_leave_the_statistics_alone() -> None:
    learner = a_learner("clear", False, normalise_observations=True)
    learner.update(of_another_scale(a_batch(0, 0, 0.5)), None)
    network, batch = learner.network, of_another_scale(a_batch(0, 7, 0.0))
    before = {name: tensor.clone() for name, tensor in as_module(network).state_dict().items() if "normalise" in name}
    step = StepInput(batch.observation[0], batch.last_action[0], batch.last_reward[0], batch.first[0])
    with torch.inference_mode():
        for column in ("act", "evaluate"):
            network.act(step, batch.core_state, column=column)
    agent = make_agent(network, SPEC)
    for observation in batch.observation[:, 0].numpy():
        agent.act(observation)
    after = as_module(network).state_dict()
    assert len(before) == 3 and all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_statistics_that_would_stay_at_their_start_are_refused() -> None:
    with pytest.raises(ConfigError, match="normalise_observations learns from new .* replay_fraction 1 leaves none"):
        a_learner("clear", False, normalise_observations=True, replay_fraction=1.0)
    config = RunConfig(normalise_observations=True)
    with pytest.raises(ConfigError, match="normalise_observations needs a network with observe, which Linear has not"):
        Learner(
            network=torch.nn.Linear(1, 1),  # pyright: ignore[reportArgumentType]  # not one of ours
            method=make_method(config), config=config, batch_frames=1, total_frames=None,
        )  # fmt: skip
