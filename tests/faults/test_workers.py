from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_processes import RowCounter, children, shared_memory, wait_until
from whole_runs import contents, rows, shards, small_config, start, state, top_by_number

from clearl.config import RunConfig
from clearl.errors import WorkerError
from clearl.experiment import run
from clearl.records.reader import scan_rows
from clearl.records.run_dir import RunDir
from clearl.records.schema import Row
from clearl.unroll import Unroll

STEPS, SLOTS = 8, 4
ENDLESS = small_config(
    runtime="local", workers=2, frames_per_visit=10**8, batch_unrolls=SLOTS, slots=SLOTS, unroll_steps=STEPS,
    buffer_frames=40 * SLOTS * STEPS, eval_every_frames=10**8, checkpoint_every_frames=1000, record_every_updates=1,
)  # fmt: skip
Record = Callable[[str, object], None]


def assert_exact(out: Path, config: RunConfig) -> None:
    """Every unroll that counts was trained on once, and the buffer is the top C by number of all of them."""
    saved, capacity = state(out), int(RunDir.open(out).meta["replay"]["capacity_unrolls"])
    unroll_frames = config.unroll_steps
    frames = saved["learner"]["state"]["counters"]["frames"]
    assert sum(saved["shards"]) * unroll_frames == frames + len(saved["intake"]["slots"]) * unroll_frames
    assert saved["cursor"]["granted_frames"] == sum(saved["shards"]) * unroll_frames
    trained = [row["frames"] for row in rows(out, "train")]
    assert trained == sorted(set(trained)) and trained[-1] == frames
    for shard in shards(out, config):
        held = contents(shard)
        assert sorted(held) == top_by_number(config, shard.slot, capacity, shard.next_sequence)
        assert_sound(held)
        shard.close()


def assert_sound(held: dict[int, Unroll]) -> None:
    for unroll in held.values():
        assert all(np.isfinite(array).all() for array in unroll.named().values() if array.dtype.kind == "f")


def stop(process: BaseProcess, out: Path) -> None:
    process.terminate()
    process.join(10)
    assert process.exitcode == 0 and RunDir.open(out).status == "interrupted"


def kill_workers(out: Path, record: Record, *, kills: int, notice_s: float, replace_s: float, seed: int) -> None:
    """SIGKILL at random moments of one run; every one is noticed, made good and counted, and nothing is lost."""
    rng, noticed, replaced = random.Random(seed), [], []
    shared, written = shared_memory(), RowCounter(out)
    process = start(ENDLESS, out)
    wait_until(process, lambda: len(written.rows("train")) > 5)
    assert process.pid is not None
    for number in range(kills):
        process.join(rng.uniform(0, 0.3))
        victim = rng.choice(("worker-0", "worker-1"))
        os.kill(children(process.pid)[victim], signal.SIGKILL)
        noticed.append(wait_until(process, lambda n=number: len(written.rows("fault")) > n))
        replaced.append(noticed[-1] + wait_until(process, lambda n=number: len(written.rows("restart")) > n))
    assert shared_memory() <= shared, "shared memory with a name outlives its processes"
    stop(process, out)
    record("kills", f"{kills}, noticed after {max(noticed):.2f} s and replaced after {max(replaced):.2f} s at the most")
    faults = rows(out, "fault")
    assert [row["problem"] for row in faults] == ["was killed by SIGKILL"] * kills
    assert_exact(out, ENDLESS)
    assert max(noticed) <= notice_s and max(replaced) <= replace_s


def test_workers_killed_at_random_moments(tmp_path: Path, record_property: Record) -> None:
    kill_workers(tmp_path, record_property, kills=2, notice_s=5, replace_s=60, seed=1)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_a_hundred_workers_killed_at_random_moments(tmp_path: Path, record_property: Record) -> None:
    kill_workers(tmp_path, record_property, kills=100, notice_s=0.5, replace_s=5, seed=2)


def stop_worker(out: Path, record: Record, *, stops: int, slack_s: float, timeout_s: float) -> None:
    """SIGSTOP: the worker is alive and says nothing."""
    config = small_config(**{**vars(ENDLESS), "worker_timeout_s": timeout_s})
    process, written, waits = start(config, out), RowCounter(out), []
    wait_until(process, lambda: len(written.rows("train")) > 5)
    assert process.pid is not None
    for number in range(stops):
        os.kill(children(process.pid)[f"worker-{number % 2}"], signal.SIGSTOP)
        waits.append(wait_until(process, lambda n=number: len(written.rows("fault")) > n))
        wait_until(process, lambda n=number: len(written.rows("restart")) > n)
    stop(process, out)
    record("stops", f"{stops}, named after {max(waits):.2f} s at the most, with worker_timeout_s {timeout_s:g}")
    for number, row in enumerate(rows(out, "fault")):
        assert row["worker"] == f"worker-{number % 2}" and f"said nothing for {timeout_s:g} s" in row["problem"]
    assert_exact(out, config)
    assert max(waits) <= timeout_s + slack_s


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_stopped_workers_are_named_and_replaced_in_time(tmp_path: Path, record_property: Record) -> None:
    stop_worker(tmp_path, record_property, stops=4, slack_s=1, timeout_s=3.0)


FAULTS = {
    "raise": "the motor is on fire", "nan": "the observation holds NaN or infinity", "inf": "reward",
    "shape": "shape (4,)", "abort": "was killed by SIGABRT", "exit": "step raised SystemExit: 0",
    "exit-at-once": "exited with code 0 while it worked on Faulty-v0",
}  # fmt: skip


class Orders:
    """Orders faults one after another, each when the one before has been made good."""

    def __init__(self, directory: Path, names: list[str]) -> None:
        self._directory, self._names = directory, names
        self._given = self._good = 0

    def __call__(self, row: Row) -> None:
        self._good += row["kind"] == "restart"
        if row["kind"] == "train" and row["updates"] > 5 and self._good == self._given < len(self._names):
            (self._directory / self._names[self._given]).touch()
            self._given += 1
        if self._good == len(self._names):
            os.kill(os.getpid(), signal.SIGTERM)
            self._good += 1


def run_with_faults(tmp_path: Path, patch: pytest.MonkeyPatch, names: list[str], **changes: Any) -> RunConfig:
    """A run whose environments misbehave as told; it is stopped when all has been made good."""
    patch.setenv("FAULTS", str(tmp_path))
    faulty = {"suite": "gym:Faulty-v0", "tasks": (), "torso": "mlp", "imports": ("faulty_envs",), **changes}
    config = small_config(**{**vars(ENDLESS), "worker_timeout_s": 3.0, **faulty})
    assert run(config, tmp_path / "run", console=False, listeners=[Orders(tmp_path, names)]).status == "interrupted"
    assert_exact(tmp_path / "run", config)
    for row in rows(tmp_path / "run", "train"):
        assert all(value is not None and np.isfinite(value) for value in row["loss"].values())
        assert row["bad_updates"] == 0
    return config


def test_environments_that_fail_are_restarted_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with_faults(tmp_path, monkeypatch, list(FAULTS))
    faults = rows(tmp_path / "run", "fault")
    for row, told in zip(faults, FAULTS.values(), strict=True):
        assert told in row["problem"] and row["worker"].startswith("worker-")


def test_what_a_worker_had_told_of_but_not_inserted_when_it_died_is_in_the_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner may have trained on it: `assert_exact` finds it missing if the next process does not insert it."""
    names = ["die-before", "die-within"] * 3
    run_with_faults(tmp_path, monkeypatch, names, imports=("faulty_envs", "faulty_memory"), buffer_frames=10**6)
    assert [row["problem"] for row in rows(tmp_path / "run", "fault")] == ["was killed by SIGKILL"] * len(names)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_an_environment_that_hangs_is_named_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    run_with_faults(tmp_path, monkeypatch, ["hang", "hang"])
    restarts = scan_rows(tmp_path / "run" / "metrics.jsonl").rows
    waits = [row["after_s"] for row in restarts if row["kind"] == "restart"]
    record_property("hangs", f"2, replaced within {max(waits):.2f} s of being named, with worker_timeout_s 3")
    assert [row["problem"] for row in rows(tmp_path / "run", "fault")] == [
        "said nothing for 3 s (worker_timeout_s) and was killed"
    ] * 2
    assert max(waits) <= 5


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_an_environment_that_keeps_failing_stops_the_run_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorkerError, match="more than 5 times in 10 minutes") as caught:
        run_with_faults(tmp_path, monkeypatch, ["raise"] * 20, workers=1)
    assert 'raise RuntimeError("the motor is on fire")' in str(caught.value)
    assert len(rows(tmp_path / "run", "fault")) == 6 and RunDir.open(tmp_path / "run").status == "failed"
