"""Whole runs in processes of their own, which a test may kill, and a comparison of what they left behind."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Mapping
from dataclasses import is_dataclass
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearl.config import RunConfig, to_yaml
from clearl.experiment import run
from clearl.records.reader import scan_rows
from clearl.records.run_dir import RunDir
from clearl.records.schema import Row
from clearl.replay.framing import open_record
from clearl.replay.shard import ReplayShard
from clearl.seeding import derive, unroll_numbers
from clearl.storage.checkpoints import CheckpointStore
from clearl.unroll import Unroll
from clearl.wiring import load_factory

SMALL: dict[str, Any] = {
    "method": "clear", "suite": "minatar", "tasks": ("breakout", "freeway"), "cycles": 2, "frames_per_visit": 600,
    "seed": 3, "runtime": "inline", "slots": 4, "batch_unrolls": 3, "unroll_steps": 8, "buffer_frames": 400,
    "eval_every_frames": 500, "eval_episodes": 2, "eval_max_steps": 20, "record_every_updates": 7,
    "checkpoint_every_frames": 150, "replay_store": "disk", "lstm_size": 16, "learner_threads": 1,
}  # fmt: skip
"""A run of a second that changes tasks, fills its buffer, and whose batches never fit its rounds."""

SWEEP = """
title: one run
settings: {suite: minatar, tasks: [breakout], frames_per_visit: 64, runtime: inline, slots: 4, batch_unrolls: 2,
  unroll_steps: 8, eval_every_frames: 64, eval_episodes: 1, eval_max_steps: 5}
arms: {clear: {method: clear}}
seeds: [0]
"""
"""A file for `clearl sweep` with one run of a second."""

VARIES = ("wall_s", "fps")
"""Keys of rows that hold times, which differ between two runs."""


def small_config(**changes: Any) -> RunConfig:
    return RunConfig(**{**SMALL, **changes})


def context() -> ForkServerContext:
    """Processes that start at once: the heavy imports are made only once, in a server that they are forked from."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["clearl.experiment", "clearl.runtimes.inline", "clearl.suites.minatar"])
    return made


def start(config: RunConfig, out: Path, *, environ: Mapping[str, str] | None = None) -> BaseProcess:
    """`clearl.experiment.run` in another process, whose own processes find the modules beside this file."""
    environ = {"PYTHONPATH": str(Path(__file__).parent), **(environ or {})}
    process = context().Process(target=_run, args=(config, out, environ))
    process.start()
    return process


def _run(config: RunConfig, out: Path, environ: Mapping[str, str]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as from a terminal, also if the tests run under nohup
    os.environ.update(environ)
    run(config, out, console=False)


def finish(config: RunConfig, out: Path) -> None:
    """Run to the end in another process."""
    process = start(config, out)
    process.join()
    assert process.exitcode == 0, f"the run in {out} ended with {process.exitcode}"


def kill_and_finish(config: RunConfig, out: Path, *, kills: int, whole: Path, rng: random.Random) -> int:
    """Kill the run `kills` times, each time at a random moment, then let it end; how often it was really killed.

    The moment is a random share of the rows of the `whole` run and a little more, so that it does not depend on speed.
    """
    killed, nbytes = 0, (whole / "metrics.jsonl").stat().st_size
    for _ in range(kills):
        process, until = start(config, out), rng.uniform(0, nbytes)
        while process.is_alive() and _nbytes(out / "metrics.jsonl") < until:
            process.join(0.005)
        process.join(rng.uniform(0, 0.1))
        killed += process.is_alive()
        process.kill()
        process.join()
    finish(config, out)
    return killed


def _nbytes(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def rows(out: Path, *kinds: str) -> list[Row]:
    """The metric rows of a run without what differs in time; all but those that tell of resumes, or only `kinds`."""
    scan = scan_rows(out / "metrics.jsonl")
    assert not scan.damaged_lines and not scan.torn_tail
    wanted = [row for row in scan.rows if (row["kind"] in kinds if kinds else row["kind"] != "resume")]
    return [{key: value for key, value in row.items() if key not in VARIES} for row in wanted]


def state(out: Path) -> dict[str, Any]:
    """All that the newest checkpoint holds, but for the clock and the length of the metrics file."""
    saved = CheckpointStore(out / "checkpoints").newest()
    assert saved is not None and saved.notes == ()
    return {key: value for key, value in saved.tree.items() if key not in ("wall_s", "metrics_position")}


def shards(out: Path, config: RunConfig) -> list[ReplayShard]:
    """The replay of a run that has ended, as its newest checkpoint left it."""
    parts, sequences = load_factory(to_yaml(config), out), state(out)["shards"]
    assert len(sequences) == (config.slots if parts.method.replay_fraction > 0 else 0)
    found = [parts.shard(slot) for slot in range(len(sequences))]
    for shard, sequence in zip(found, sequences, strict=True):
        shard.restore(sequence)
    return found


def contents(shard: ReplayShard) -> dict[int, Unroll]:
    """Every unroll that a shard holds, decoded, by its sequence number."""
    reservoir = shard._reservoir
    found = {}
    for position in np.flatnonzero(shard._store.present(reservoir.held)).tolist():
        sequence, number = int(reservoir.sequences[position]), int(reservoir.numbers[position])
        record = shard._store.get(position)
        found[sequence] = shard.codec.decode(open_record(record, slot=shard.slot, sequence=sequence, number=number))
    return found


def top_by_number(config: RunConfig, slot: int, capacity: int, inserted: int) -> list[int]:
    """Return what a reservoir must hold after `inserted` unrolls: those with the highest numbers, by sorting all."""
    numbers = unroll_numbers(derive(config.seed, "reservoir", slot), np.arange(inserted))
    return sorted(np.argsort(numbers)[::-1][:capacity].tolist())


def assert_same_runs(a: Path, b: Path, config: RunConfig) -> None:
    """Parameters, optimiser, counters, random states, environments, replay and metrics are equal, bit for bit."""
    assert RunDir.open(a).status == RunDir.open(b).status == "finished"
    assert_equal(state(a), state(b), "checkpoint")
    assert_equal(rows(a), rows(b), "metrics")
    capacity = int(RunDir.open(a).meta["replay"]["capacity_unrolls"])
    for one, other in zip(shards(a, config), shards(b, config), strict=True):
        held = contents(one)
        assert sorted(held) == top_by_number(config, one.slot, capacity, one.next_sequence)
        assert_equal(held, contents(other), f"slot {one.slot}")
        one.close()
        other.close()


def assert_equal(a: Any, b: Any, where: str) -> None:
    """Deep equality of trees of JSON types and arrays, bit for bit."""
    assert type(a) is type(b), where
    if is_dataclass(a):
        assert_equal(vars(a), vars(b), where)
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_equal(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for index, (one, other) in enumerate(zip(a, b, strict=True)):
            assert_equal(one, other, f"{where}/{index}")
    elif isinstance(a, torch.Tensor):
        assert_equal(a.numpy(), b.numpy(), where)
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes(), where
    else:
        assert a == b or (a != a and b != b), f"{where}: {a!r} is not {b!r}"
