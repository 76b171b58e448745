"""The point of it all: on one cycle of three control schemes the baseline forgets the first, and CLEAR does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clearl.config import RunConfig, resolve, to_yaml
from clearl.records.table import MetricsTable

SEEDS = (0, 1, 2)
TASKS = ("breakout", "breakout@1", "breakout@2")


def configs() -> dict[tuple[str, int], RunConfig]:
    common = {"runtime": "inline", "cycles": 1, "learner_threads": 1, "eval_every_frames": 120_000}
    common |= {"checkpoint_every_frames": None, "eval_episodes": 32, "frames_per_visit": 100_000}
    return {
        (method, seed): resolve("minatar-schemes", flags={**common, "method": method, "seed": seed})
        for method in ("baseline", "clear")
        for seed in SEEDS
    }


def run_all(root: Path, jobs: int) -> None:
    """Each run in a process of its own, `jobs` at a time."""
    waiting, running = [], []
    for (method, seed), config in configs().items():
        file = root / f"{method}-{seed}.yaml"
        file.write_text(to_yaml(config))
        out = root / f"{method}-{seed}"
        waiting.append([sys.executable, "-m", "clearl", "run", "--config", str(file), "--out", str(out), "--quiet"])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(subprocess.Popen(waiting.pop(0), env=environment, stdout=subprocess.DEVNULL))
        assert running.pop(0).wait() == 0


def first_task(root: Path, method: str) -> np.ndarray:
    """The first task's score at the end, after two visits to other tasks, seed by seed."""
    tables = [MetricsTable.read(root / f"{method}-{seed}").where(kind="eval", task=TASKS[0]) for seed in SEEDS]
    return np.array([table["return"][-1] for table in tables], float)


@pytest.mark.timeout(1200)
def test_the_baseline_forgets_and_clear_does_not(tmp_path: Path) -> None:
    run_all(tmp_path, jobs=os.cpu_count() or 1)
    baseline, clear = first_task(tmp_path, "baseline"), first_task(tmp_path, "clear")
    assert baseline.max() < 1.6, baseline
    assert clear.min() > 2.0, clear
    assert clear.mean() > 2.5 * baseline.mean(), (baseline, clear)
