"""The point of it all: on one cycle of three control schemes the baseline forgets the first task, and others do not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearl.config import resolve
from clearl.records.table import MetricsTable
from clearl.reproduce.planned import PlannedRun
from clearl.reproduce.runner import run_all

SEEDS = (0, 1, 2)
FIRST_TASK = "breakout"
METHODS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "clear": {},
    "ewc": {"ewc_lambda": 1e5},
    "progress-compress": {"online_ewc_lambda": 25.0, "compress_frames": 50_000},
}


def planned(method: str) -> list[PlannedRun]:
    common = {"runtime": "inline", "cycles": 1, "learner_threads": 1, "eval_every_frames": 120_000}
    common |= {"checkpoint_every_frames": None, "eval_episodes": 32, "frames_per_visit": 100_000, "method": method}
    configs = [resolve("minatar-schemes", flags={**common, **METHODS[method], "seed": seed}) for seed in SEEDS]
    return [PlannedRun("learning", method, config) for config in configs]


@pytest.mark.timeout(1500)
def test_only_the_baseline_forgets(tmp_path: Path) -> None:
    runs = {method: planned(method) for method in METHODS}
    assert run_all([run for each in runs.values() for run in each], tmp_path, jobs=os.cpu_count() or 1)
    first_task = {method: np.array([last_score(tmp_path / run.path) for run in each]) for method, each in runs.items()}
    baseline, clear = first_task["baseline"], first_task["clear"]
    assert baseline.max() < 1.6, first_task
    assert clear.min() > 2.0, first_task
    assert clear.mean() > 2.5 * baseline.mean(), first_task
    for method in ("ewc", "progress-compress"):
        assert first_task[method].min() > baseline.max(), first_task
        assert first_task[method].mean() > 2 * baseline.mean(), first_task


def last_score(run_dir: Path) -> float:
    """Return the score on the first task after two visits to other tasks."""
    return float(MetricsTable.read(run_dir).where(kind="eval", task=FIRST_TASK)["return"][-1])
