"""A run of two tasks whose replay lies on disk, its batches never full at the end; for tests of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SMALL: dict[str, Any] = {
    "tasks": ("breakout", "freeway"), "runtime": "inline", "slots": 4, "batch_unrolls": 3, "unroll_steps": 5,
    "frames_per_visit": 410, "cycles": 1, "eval_every_frames": 400, "eval_episodes": 1, "eval_max_steps": 20,
    "replay_store": "disk", "buffer_frames": 500, "method": "clear", "seed": 5, "record_every_updates": 5,
    "torso": "minatar", "checkpoint_every_frames": 200,
}  # fmt: skip


def files(path: Path) -> dict[str, bytes]:
    """Every file below `path`."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
