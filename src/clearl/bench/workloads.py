"""The workloads of `clearl bench`: CLEAR 50-50 with `local` on one kind of task each, as settings of a run."""

from __future__ import annotations

from typing import Any

from clearl.config import RunConfig, resolve
from clearl.errors import UnknownNameError

_COMMON: dict[str, Any] = {
    "method": "clear", "replay_fraction": 0.5, "runtime": "local", "protocol": "sequential", "cycles": 1,
    "checkpoint_every_frames": None, "record_every_updates": 5,
}  # fmt: skip
_MINATAR: dict[str, Any] = {"preset": "minatar", "tasks": ("breakout", "space_invaders", "asterix")}
# The preset plays 10 episodes every 2M frames, which is minutes; one episode every 200k is the same share of them.
_ATARI: dict[str, Any] = {
    "preset": "impala-atari", "tasks": ("space_invaders",), "anneal": False,
    "eval_every_frames": 200_000, "eval_episodes": 1,
}  # fmt: skip
# The presets evaluate for curves; here as seldom as the others do.
_SELDOM: dict[str, Any] = {"anneal": False, "eval_every_frames": 200_000, "eval_episodes": 4, "switch_episodes": 4}

WORKLOADS: dict[str, dict[str, Any]] = {
    "minatar": _MINATAR,
    "minatar-lstm": _MINATAR | {"lstm": True},
    "atari": _ATARI,
    "atari-lstm": _ATARI | {"lstm": True},
    "vizdoom": {"preset": "vizdoom"},
    "control": {"preset": "control-schemes", **_SELDOM},
    # Larger batches than the preset's, which was chosen for learning: figures of versions stay comparable.
    "mujoco": {"preset": "mujoco", "slots": 16, "batch_unrolls": 16, "unroll_steps": 32, **_SELDOM},
}


def workload(name: str, **changes: Any) -> RunConfig:
    """Return the settings of a workload, perhaps with some of them changed."""
    if name not in WORKLOADS:
        raise UnknownNameError("workload", name, [*WORKLOADS, "all"])
    return resolve(flags=_COMMON | WORKLOADS[name] | changes)
