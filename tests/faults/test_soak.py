"""A run without an end, in the smallest visits there are: disk, memory and rows stay bounded, no evaluation is lost."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from math import log2
from pathlib import Path
from statistics import median

import psutil
import pytest
from run_processes import RowCounter
from whole_runs import rows, small_config, start, state

from clearl.records.parts import PART_NBYTES
from clearl.records.run_dir import RunDir

MB = 1 << 20
# One round of all slots is a visit. Its switch evaluation is the most that a run can record in so little time.
SMALLEST = {
    "cycles": "forever", "frames_per_visit": 32, "batch_unrolls": 4, "eval_every_frames": 320, "eval_episodes": 1,
    "eval_max_steps": 2, "record_every_updates": 1, "checkpoint_every_frames": 3200, "buffer_frames": 3200,
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """The sizes of a run after some visits."""

    visits: int
    resident: int
    files: int
    disk: int
    """Bytes of replay and checkpoints."""
    rows: int
    """Bytes of `metrics.jsonl` and its closed parts."""


def nbytes(directory: Path) -> int:
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue  # replaced in the meantime
    return total


def soak(out: Path, seconds: float, *, every_s: float) -> list[Sample]:
    """Let a run go on for so long, stop it as a user would, and check that nothing it evaluated is missing."""
    process, written, samples = start(small_config(**SMALLEST), out), RowCounter(out), list[Sample]()
    assert process.pid is not None
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        process.join(every_s)
        assert process.is_alive(), f"the run ended by itself with {process.exitcode}"
        trained = written.rows("train")
        if not trained or trained[-1]["frames"] < 4 * SMALLEST["checkpoint_every_frames"]:
            until = time.monotonic() + seconds  # importing, filling replay and the first checkpoints are no part of it
            continue
        one = psutil.Process(process.pid)
        disk = nbytes(out / "replay") + nbytes(out / "checkpoints")
        visits, newest = len(written.rows("segment")) // 2, (out / "metrics.jsonl").stat().st_size
        assert newest < PART_NBYTES + MB, "metrics.jsonl is closed as a part in time"
        metrics = newest + sum(part.stat().st_size for part in out.glob("metrics-*.jsonl.zst"))
        samples.append(Sample(visits, one.memory_info().rss, one.num_fds(), disk, metrics))
    process.terminate()
    process.join(30)
    assert process.exitcode == 0 and RunDir.open(out).status == "interrupted"
    return samples


def check(out: Path, samples: list[Sample], *, most_mb: float) -> str:
    """Assert the bounds; return what was measured, in words."""
    saved, evaluations = state(out), rows(out, "eval")
    for task in ("breakout", "freeway"):
        switches = [row["segment"] for row in evaluations if row.get("switch") and row["task"] == task]
        regular = [row["frames"] for row in evaluations if not row.get("switch") and row["task"] == task]
        assert switches == list(range(saved["segment"])), "every visit is evaluated at its end, once"
        assert regular == list(range(0, regular[-1] + 1, 320)), "none of the evaluations between them is missing"
    updates = rows(out, "train")[-1]["updates"]
    most = 10_001 + 5_000 * log2(max(1, updates / 10_000))
    assert len(rows(out, "train")) <= most, "rows of training are thinned"
    half = samples[len(samples) // 2 :]
    early, late = half[: len(half) // 4 + 1], half[-(len(half) // 4 + 1) :]
    grown = (median(s.resident for s in late) - median(s.resident for s in early)) / MB
    assert grown < most_mb, f"resident memory grew by {grown:.1f} MB in the second half"
    assert median(s.files for s in late) <= median(s.files for s in early) + 1, "one more is open while it writes"
    assert max(s.disk for s in late) < 1.5 * max(s.disk for s in early), "replay and checkpoints are full"
    each = samples[-1].rows / samples[-1].visits
    assert each < 1500, f"{each:.0f} bytes of rows a visit"
    return (
        f"{samples[-1].visits:,} visits, {updates:,} updates; second half: memory {grown:+.1f} MB of "
        f"{samples[-1].resident / MB:.0f}, replay and checkpoints {late[-1].disk / MB:.1f} MB; {each:.0f} bytes of "
        f"rows a visit, all {len(evaluations):,} evaluations there"
    )


def test_a_few_seconds(tmp_path: Path) -> None:
    """Too short for small leaks, but one that keeps every batch or row grows by hundreds of megabytes."""
    check(tmp_path / "run", soak(tmp_path / "run", 6, every_s=0.1), most_mb=16)


@pytest.mark.nightly
@pytest.mark.timeout(4000)
def test_an_hour(tmp_path: Path, record_property) -> None:
    record_property("soak", check(tmp_path / "run", soak(tmp_path / "run", 3600, every_s=2), most_mb=16))
