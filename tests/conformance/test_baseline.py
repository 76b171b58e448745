"""The baseline is CLEAR without replay: whole runs agree bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from clearl.config import RunConfig
from clearl.experiment import run
from clearl.storage.checkpoints import CheckpointStore

SMALL: dict[str, Any] = {
    "tasks": ("breakout", "breakout@1"), "runtime": "inline", "slots": 4, "batch_unrolls": 4, "unroll_steps": 5,
    "frames_per_visit": 500, "cycles": 1, "eval_every_frames": 1000, "eval_episodes": 1, "eval_max_steps": 20,
}  # fmt: skip


def trained(out: Path, **settings: Any) -> dict[str, torch.Tensor]:
    run(RunConfig(**{**SMALL, **settings}), out, console=False)
    saved = CheckpointStore(out / "checkpoints").newest()
    assert saved is not None and saved.tree["learner"]["state"]["counters"]["updates"] == 50
    return saved.tree["learner"]["tensors"]


def test_fifty_updates_without_replay_are_the_baselines_bit_for_bit(tmp_path: Path) -> None:
    baseline = trained(tmp_path / "baseline", method="baseline")
    clear = trained(tmp_path / "clear", method="clear", replay_fraction=0.0)
    assert baseline.keys() == clear.keys()
    assert all(torch.equal(tensor, clear[name]) for name, tensor in baseline.items())


def test_with_replay_they_part(tmp_path: Path) -> None:
    baseline = trained(tmp_path / "baseline", method="baseline")
    clear = trained(tmp_path / "clear", method="clear", replay_fraction=0.5)
    assert any(not torch.equal(tensor, clear[name]) for name, tensor in baseline.items())
