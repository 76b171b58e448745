"""The contents of a run's replay buffer: frames, bytes, ages and returns, by task.

    memory = read_memory(Path("runs/a"))
    memory.tasks["breakout"].median_age_frames

Reads a run without changing it, also while it trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from clearl.config import parse_yaml
from clearl.errors import CorruptFileError, RunDirectoryError
from clearl.records.reader import scan_rows
from clearl.records.run_dir import META_FILE, RunDir
from clearl.replay.contents import ShardContents, read_shard, shard_directories
from clearl.replay.history import earlier_of
from clearl.replay.labels import task_name
from clearl.spaces import spec_from_json
from clearl.storage.checkpoints import Saved
from clearl.wiring import saved_checkpoints


@dataclass(frozen=True)
class TaskMemory:
    """The buffer's contents of one task; None for unknown numbers."""

    unrolls: int
    frames: int
    median_age_frames: int | None
    oldest_age_frames: int | None = None
    newest_age_frames: int | None = None
    nbytes: int | None = None
    mean_return: float | None = None
    """The mean over unrolls of the sum of rewards, as the environment returned them."""
    played_frames: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64), compare=False)
    """[unrolls]: the frame at which each was played; for figures."""
    returns: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32), compare=False)
    """[unrolls]: the return of each; for figures."""


@dataclass(frozen=True)
class Memory:
    """The contents of a run's buffer at `now_frames` of training."""

    path: Path
    now_frames: int
    unroll_frames: int
    tasks: dict[str, TaskMemory]
    disk_nbytes: int | None = None
    """Bytes of the files, waste included."""
    lost: int = 0
    """The number of unrolls that are missing from the files."""
    problems: tuple[str, ...] = ()
    note: str = ""
    """The reason why some numbers are unknown."""

    @property
    def unrolls(self) -> int:
        return sum(task.unrolls for task in self.tasks.values())


def read_memory(path: Path) -> Memory:
    """Read the buffer of the run in `path`."""
    run_dir = RunDir.open(path)
    replay, saved = replay_of(run_dir), saved_checkpoints(run_dir).newest()
    now, passed_over = _now_frames(run_dir, saved), saved.notes if saved else ()
    unroll_frames = _unroll_frames(run_dir)
    if replay.get("forecast") == "no replay":
        note = "the method of this run has no replay"
        return Memory(path, now, unroll_frames, {}, problems=passed_over, note=note)
    if replay.get("store") != "disk" or not shard_directories(run_dir.replay_path):
        return replace(_recorded(run_dir, replay, now, unroll_frames), problems=passed_over)
    shards = read_shards(run_dir, None if run_dir.status == "running" else at_rest(run_dir, saved))
    held = np.concatenate([shard.held for shard in shards])
    tasks = {task_name(number): held[held["label"]["task"] == number] for number in np.unique(held["label"]["task"])}
    return Memory(
        path, now, unroll_frames,
        {task: _of_task(tasks[task], now, unroll_frames) for task in sorted(tasks)},
        disk_nbytes=sum(shard.nbytes for shard in shards),
        lost=sum(shard.lost for shard in shards) if run_dir.status != "running" else 0,
        problems=(*passed_over, *(problem for shard in shards for problem in shard.problems)),
    )  # fmt: skip


def replay_of(run_dir: RunDir) -> dict[str, Any]:
    """Return the meta data on replay of a run that trains one network."""
    meta = run_dir.meta
    if parts := meta.get("parts"):
        listed = ", ".join(str(run_dir.path / str(part)) for part in parts)
        raise RunDirectoryError(f"{run_dir.path} holds a run for each task; name one of: {listed}")
    replay = meta.get("replay")
    if not isinstance(replay, dict) or type(replay.get("capacity_unrolls")) is not int:
        raise CorruptFileError(f"{run_dir.path / META_FILE} does not say how much replay the run holds")
    return replay


def at_rest(run_dir: RunDir, saved: Saved | None) -> list[int] | None:
    """Return the number of unrolls that each slot had offered at the newest checkpoint; None if there is none."""
    if saved is None:
        return None
    return [int(n) for n in saved.json["shards"] or run_dir.meta["replay"].get("sequences") or ()] or None


def read_shards(run_dir: RunDir, sequences: list[int] | None) -> list[ShardContents]:
    """Read every shard, as it was after `sequences` unrolls of each slot, or (None) as it is."""
    replay, seed = replay_of(run_dir), int(run_dir.meta["seed"])
    return [
        read_shard(
            directory, slot=slot, seed=seed, capacity=replay["capacity_unrolls"],
            earlier=earlier_of(replay.get("earlier", ()), slot),
            next_sequence=sequences[slot] if sequences is not None and slot < len(sequences) else None,
        )
        for slot, directory in shard_directories(run_dir.replay_path).items()
    ]  # fmt: skip


def _of_task(held: np.ndarray, now: int, unroll_frames: int) -> TaskMemory:
    played, returns = held["label"]["frames"], held["label"]["reward_sum"]
    ages = np.maximum(0, now - played[played >= 0])
    returns = returns[np.isfinite(returns)]
    known = len(ages) > 0
    return TaskMemory(
        unrolls=len(held),
        frames=len(held) * unroll_frames,
        median_age_frames=round(float(np.median(ages))) if known else None,
        oldest_age_frames=int(ages.max()) if known else None,
        newest_age_frames=int(ages.min()) if known else None,
        nbytes=int(held["length"].sum(dtype=np.int64)),
        mean_return=float(returns.mean(dtype=np.float64)) if len(returns) else None,
        played_frames=played[played >= 0].copy(),
        returns=returns.copy(),
    )


def _recorded(run_dir: RunDir, replay: Mapping[str, Any], now: int, unroll_frames: int) -> Memory:
    """Read the last row of training metrics instead, as the buffer itself cannot be read."""
    gone = "was in RAM" if replay.get("store") != "disk" else "is gone (keep_replay was off, or it was removed)"
    rows = [row for row in scan_rows(run_dir.metrics_path).rows if row["kind"] == "train"]
    counted = [row for row in rows if isinstance(row["replay"].get("by_task"), dict)]
    if not counted:
        return Memory(run_dir.path, now, unroll_frames, {}, note=f"the buffer {gone}, and no row tells what it held")
    last = counted[-1]
    tasks = {
        str(task): TaskMemory(int(each["unrolls"]), int(each["unrolls"]) * unroll_frames, each["median_age_frames"])
        for task, each in last["replay"]["by_task"].items()
    }
    note = f"the buffer {gone}: this is what it held at {last['frames']:,} frames"
    return Memory(run_dir.path, int(last["frames"]), unroll_frames, tasks, note=note)


def _unroll_frames(run_dir: RunDir) -> int:
    settings = parse_yaml(run_dir.config_text, str(run_dir.path))
    spec = spec_from_json(run_dir.meta.get("spec"), str(run_dir.path / META_FILE))
    return int(settings["unroll_steps"]) * spec.frames_per_step


def _now_frames(run_dir: RunDir, saved: Saved | None) -> int:
    """Return the frames trained on, from the newest checkpoint, or from the last row if that is later."""
    now = 0 if saved is None else int(saved.json["learner"]["state"]["counters"]["frames"])
    if run_dir.status != "running":
        return now
    rows = scan_rows(run_dir.metrics_path, thin="train").rows
    return max([now, *(int(row["frames"]) for row in rows if row["kind"] == "train")])
