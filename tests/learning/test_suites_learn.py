"""A minute of real training on every suite that can be installed: CLEAR gets better than the untrained policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearl.config import resolve
from clearl.experiment import run
from clearl.records.table import MetricsTable


@dataclass(frozen=True)
class Minute:
    """About a minute of training on two cores, and by how much the score must rise in it."""

    preset: str
    task: str
    frames: int
    gain: float
    more: dict[str, Any] = field(default_factory=dict)


MINUTES = [
    Minute("minatar", "breakout", 1_000_000, 3.0),
    Minute("gym-classic", "CartPole-v1", 300_000, 150.0, {"suite": "gym:CartPole-v1"}),
    Minute("pendulum", "Pendulum-v1", 200_000, 300.0, {"method": "baseline"}),
    Minute("mujoco", "half_cheetah", 300_000, 500.0, {"method": "baseline"}),
    Minute("minigrid", "MiniGrid-Empty-Random-6x6-v0", 500_000, 0.3),
    Minute("vizdoom", "deadly_corridor", 200_000, 100.0, {"slots": 8, "batch_unrolls": 8}),
    Minute(
        "impala-atari", "crazy_climber", 500_000, 1_000.0,
        {"anneal": False, "optimizer": "adam", "learning_rate": 5e-4, "adam_eps": 1e-5, "slots": 8, "batch_unrolls": 8,
         "eval_max_steps": 600},
    ),
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("minute", MINUTES, ids=[minute.preset for minute in MINUTES])
def test_a_minute_of_training_raises_the_score(minute: Minute, tmp_path: Path) -> None:
    flags = {
        "method": "clear", "tasks": (minute.task,), "cycles": 1, "frames_per_visit": minute.frames,
        "eval_every_frames": minute.frames, "eval_episodes": 16, "checkpoint_every_frames": None, "seed": 0,
    }  # fmt: skip
    run(resolve(minute.preset, flags={**flags, **minute.more}), tmp_path, console=False)
    table = MetricsTable.read(tmp_path)
    scores = table.where(kind="eval")["return"]
    assert scores[-1] >= scores[0] + minute.gain, scores
    losses = table.where(kind="train")["loss"]
    assert all(np.isfinite(list(loss.values())).all() for loss in losses)
