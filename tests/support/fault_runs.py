"""Runs without an end whose workers or environments fail, and the proof that nothing was lost or counted twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import contents, rows, shards, small_config, state, top_by_number

from clearl.config import RunConfig
from clearl.experiment import run
from clearl.records.run_dir import RunDir
from clearl.records.schema import Row
from clearl.runtimes.supervision import REBUILT
from clearl.unroll import Unroll

STEPS, SLOTS = 8, 4
ENDLESS = small_config(
    runtime="local", workers=2, frames_per_visit=10**8, batch_unrolls=SLOTS, slots=SLOTS, unroll_steps=STEPS,
    buffer_frames=40 * SLOTS * STEPS, eval_every_frames=10**8, checkpoint_every_frames=1000, record_every_updates=1,
)  # fmt: skip
Record = Callable[[str, object], None]


def stop(process: BaseProcess, out: Path) -> None:
    """End a run in good order."""
    process.terminate()
    process.join(10)
    assert process.exitcode == 0 and RunDir.open(out).status == "interrupted"


def assert_exact(out: Path, config: RunConfig) -> None:
    """Every unroll that counts was trained on once, and the buffer is the top C by number of all of them."""
    saved, capacity = state(out), int(RunDir.open(out).meta["replay"]["capacity_unrolls"])
    unroll_frames, batch_frames = config.unroll_steps, config.batch_unrolls * config.unroll_steps
    frames = saved["learner"]["state"]["counters"]["frames"]
    assert sum(saved["shards"]) * unroll_frames == frames + len(saved["intake"]["slots"]) * unroll_frames
    assert saved["cursor"]["granted_frames"] == sum(saved["shards"]) * unroll_frames
    trained = [row["frames"] for row in rows(out, "train")]
    assert trained == sorted(set(trained)) and frames - trained[-1] < config.record_every_updates * batch_frames
    for shard in shards(out, config):
        held = contents(shard)
        assert sorted(held) == top_by_number(config, shard.slot, capacity, shard.next_sequence)
        assert_sound(held)
        shard.close()


def assert_sound(held: dict[int, Unroll]) -> None:
    for unroll in held.values():
        assert all(np.isfinite(array).all() for array in unroll.named().values() if array.dtype.kind == "f")


class Orders:
    """Orders faults one after another, each some updates after the one before has been made good.

    In between, an environment that was built anew has made the steps after which it may be again.
    """

    def __init__(self, directory: Path, names: list[str]) -> None:
        self._directory, self._names = directory, names
        self._given = self._good = self._next_update = 0

    def __call__(self, row: Row) -> None:
        made_good = row["kind"] == "restart" or (row["kind"] == "fault" and row["problem"].endswith(REBUILT))
        self._good += made_good
        if row["kind"] == "train" and self._good == self._given < len(self._names):
            self._next_update = self._next_update or row["updates"] + 6
            if row["updates"] >= self._next_update:
                (self._directory / self._names[self._given]).touch()
                self._given, self._next_update = self._given + 1, 0
        if self._good == len(self._names):
            os.kill(os.getpid(), signal.SIGTERM)
            self._good += 1


def faulty_config(**changes: Any) -> RunConfig:
    """A run without an end on environments that misbehave as told."""
    faulty = {"suite": "gym:Faulty-v0", "tasks": (), "torso": "mlp", "imports": ("faulty_envs",), **changes}
    return small_config(**{**vars(ENDLESS), "worker_timeout_s": 3.0, **faulty})


def assert_saved_to_the_end(out: Path) -> int:
    """Assert that the newest checkpoint holds all updates that were recorded; return their frames."""
    frames = state(out)["learner"]["state"]["counters"]["frames"]
    assert frames == rows(out, "train")[-1]["frames"]
    return frames


def run_with_faults(
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
    names: list[str],
    listeners: Sequence[Callable[[Row], None]] = (),
    **changes: Any,
) -> RunConfig:
    """A run whose environments misbehave as told; it is stopped when all has been made good."""
    patch.setenv("FAULTS", str(tmp_path))
    config = faulty_config(**changes)
    listeners = [Orders(tmp_path, names), *listeners]
    assert run(config, tmp_path / "run", console=False, listeners=listeners).status == "interrupted"
    assert_exact(tmp_path / "run", config)
    for row in rows(tmp_path / "run", "train"):
        assert all(value is not None and np.isfinite(value) for value in row["loss"].values())
        assert row["bad_updates"] == 0
    return config
