"""A whole measurement on a task of next to nothing: real processes, a real run."""

from __future__ import annotations

import pytest

from clearl.bench.measure import measure
from clearl.bench.stages import Stage
from clearl.bench.workloads import workload
from clearl.errors import WorkerError

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


def test_a_stage_that_cannot_work_is_an_error() -> None:
    config = workload("minatar", **SMALL)
    object.__setattr__(config, "torso", "no such torso")
    with pytest.raises(WorkerError, match="measures inference"), Stage("inference", config) as stage:
        stage.wait_until_ready()
