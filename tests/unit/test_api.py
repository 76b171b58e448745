"""The library does what the command line does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import clearl
from clearl.records.run_dir import RunDir

SMALL: dict[str, Any] = {
    "tasks": ("breakout",), "runtime": "inline", "slots": 4, "batch_unrolls": 4, "unroll_steps": 5,
    "frames_per_visit": 40, "record_every_updates": 1, "eval_every_frames": 40, "eval_episodes": 1,
    "eval_max_steps": 20,
}  # fmt: skip


def test_a_run_takes_an_arm_and_listeners(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    result = clearl.run(out=tmp_path / "run", arm="mine", listeners=[rows.append], **SMALL)
    assert RunDir.open(result.path).meta["arm"] == "mine"
    assert {"eval", "train", "segment"} <= {row["kind"] for row in rows}
