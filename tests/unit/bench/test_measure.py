"""A whole measurement on a task of next to nothing: real processes, a real run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import clearl
from clearl.bench.measure import measure
from clearl.bench.stages import StageProcesses
from clearl.bench.work import environment, learner, noise_batch
from clearl.bench.workloads import workload
from clearl.errors import WorkerError
from clearl.spaces import discrete_spec
from clearl.suites.control import PendulumEnvs
from clearl.unroll import UnrollLayout

SMALL = {"slots": 4, "batch_unrolls": 4, "unroll_steps": 5, "tasks": ("breakout",), "eval_episodes": 1}


def test_a_measurement_has_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    said: list[str] = []
    result = measure("minatar", repeats=1, seconds=0.5, say=said.append, config=workload("minatar", **SMALL))
    rates = {name: rate["median"] for name, rate in result["frames_per_s"].items()}
    parts = ("environment", "inference", "learner")
    assert rates["ideal"] == pytest.approx(1 / sum(1 / rates[part] for part in parts))
    assert result["achieved_over_ideal"] == pytest.approx(rates["achieved"] / rates["ideal"])
    assert {"environment", "inference", "codec", "copying", "waiting"} <= result["breakdown"]["worker-0"].keys()
    assert {"forward", "backward", "optimiser", "waiting"} <= result["breakdown"]["learner"].keys()
    assert all(sum(parts.values()) == pytest.approx(1) for parts in result["breakdown"].values())
    assert len(said) == 1
    assert result["versions"]["clearl"] == clearl.__version__  # of the code, not of an older editable install


def test_a_stage_that_cannot_work_is_an_error() -> None:
    config = workload("minatar", **SMALL)
    object.__setattr__(config, "torso", "no such torso")
    with pytest.raises(WorkerError, match="measures inference"), StageProcesses("inference", config) as stage:
        stage.wait_until_ready()


ON_TOP = {"pairs": "both", "replay_ratio": 0.5}


@pytest.mark.parametrize(("changes", "unrolls", "replayed"), [({}, 32, 16), (ON_TOP, 48, 16)])
def test_the_batch_that_a_learner_is_measured_on_is_that_of_its_settings(
    changes: dict[str, Any], unrolls: int, replayed: int
) -> None:
    config = workload("minatar", **changes)
    layout = UnrollLayout(discrete_spec((4, 10, 10), "bool", 6), config.unroll_steps)
    batch = noise_batch(layout, config)
    assert (batch.is_replay.numel(), int(batch.is_replay.sum())) == (unrolls, replayed)


def test_the_method_that_is_measured_built_the_network_that_it_trains() -> None:
    config = workload("minatar", method="l2-init+clear", tasks=("breakout",), slots=4, batch_unrolls=2, unroll_steps=4)
    assert learner(config, 1).once() == 2 * 4, "the initial parameters are those of this network"


def test_environments_are_stepped_as_the_untrained_policy_would(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[np.ndarray] = []
    monkeypatch.setattr(PendulumEnvs, "step", lambda envs, actions: played.append(actions))
    config = workload("control", slots=4, batch_unrolls=4, unroll_steps=500, action_std_initial=0.2)
    environment(config, processes=1).once()
    assert np.std(played) == pytest.approx(0.2, rel=0.05)
