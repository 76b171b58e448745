from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from run_processes import RowCounter, alive, children, shared_memory, wait_until
from whole_runs import assert_equal, contents, finish, rows, shards, small_config, start, state, top_by_number

from clearl.config import RunConfig, to_yaml
from clearl.records.run_dir import RunDir
from clearl.unroll import Unroll
from clearl.wiring import load_factory


def config_of(frames_per_visit: int) -> RunConfig:
    return small_config(
        runtime="local", workers=2, cycles=1, frames_per_visit=frames_per_visit, buffer_frames=frames_per_visit,
        checkpoint_every_frames=500, eval_every_frames=4000, record_every_updates=5,
    )  # fmt: skip


Held = dict[int, Unroll]


def on_disk(out: Path, config: RunConfig, scratch: Path) -> list[tuple[int, Held]]:
    """For each slot, how many unrolls its files account for and what they hold, read from a copy."""
    shutil.copytree(out, scratch)
    parts = load_factory(to_yaml(config), scratch)
    found = []
    for slot in range(config.slots):
        shard = parts.shard(slot)
        reached = shard.recovered_next_sequence()
        shard.restore(reached)
        found.append((reached, contents(shard)))
        shard.close()
    shutil.rmtree(scratch)
    return found


def kill_run(
    tmp_path: Path, record: Callable[[str, object], None], config: RunConfig, *, kills: int, seed: int
) -> None:
    """SIGKILL the learner's process at random moments: no process is left behind, and no unroll that counts is lost."""
    rng, shared, out = random.Random(seed), shared_memory(), tmp_path / "run"
    least_frames, gone_s = 0, []
    left: list[tuple[int, Held]] = [(0, {})] * config.slots
    for _ in range(kills):
        process = start(config, out)
        assert process.pid is not None
        wait_until(process, lambda pid=process.pid: len(children(pid)) >= 2)
        written = RowCounter(out)
        before = len(written.rows("train"))
        wait_until(process, lambda n=before, w=written: len(w.rows("train")) > n + 5)
        process.join(rng.uniform(0, 0.3))
        family = list(children(process.pid).values())
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        gone_s.append(wait_for_end(family))
        trained = [row["frames"] for row in RowCounter(out).rows("train")]
        assert trained == sorted(set(trained)) and trained[-1] >= least_frames
        least_frames = checkpointed_frames(out)
        found = on_disk(out, config, tmp_path / "copy")
        assert_kept(left, found)
        left = found
    assert shared_memory() <= shared
    finish(config, out)
    end = [(shard.next_sequence, contents(shard)) for shard in shards(out, config)]
    assert_kept(left, end)
    assert_finished(out, config, end)
    record("runs", f"{kills} kills; the last of their processes was gone after {max(gone_s):.2f} s")


def checkpointed_frames(out: Path) -> int:
    if not (out / "checkpoints").exists():
        return 0
    return int(state(out)["learner"]["state"]["counters"]["frames"])


def wait_for_end(pids: list[int]) -> float:
    """Seconds until none of the processes is left; 5 at the most."""
    begun = time.monotonic()
    while alive(pids):
        assert time.monotonic() - begun < 5, "a process has outlived its run"
    return time.monotonic() - begun


def assert_kept(before: list[tuple[int, Held]], after: list[tuple[int, Held]]) -> None:
    """Assert that the files keep their unrolls, unless one with a higher number has displaced them."""
    for slot, ((reached, old), (now, new)) in enumerate(zip(before, after, strict=True)):
        assert now >= reached
        still = {sequence: unroll for sequence, unroll in new.items() if sequence < reached}
        assert_equal({sequence: old[sequence] for sequence in still}, still, f"slot {slot}")
        assert len(still) == len(old) or len(new) - len(still) >= len(old) - len(still)


def assert_finished(out: Path, config: RunConfig, end: list[tuple[int, Held]]) -> None:
    capacity = int(RunDir.open(out).meta["replay"]["capacity_unrolls"])
    assert RunDir.open(out).status == "finished"
    for slot, (inserted, held) in enumerate(end):
        assert sorted(held) == top_by_number(config, slot, capacity, inserted)
    frames = [row["frames"] for row in rows(out, "train")]
    assert frames == sorted(set(frames))
    assert state(out)["cursor"]["granted_frames"] >= 2 * (config.frames_per_visit or 0)


def test_a_run_killed_as_a_whole_leaves_nobody_and_loses_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    kill_run(tmp_path, record_property, config_of(2000), kills=1, seed=1)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_runs_killed_as_a_whole_twenty_times(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    kill_run(tmp_path, record_property, config_of(30_000), kills=20, seed=2)
