from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
import pytest
from run_processes import RowCounter, children, shared_memory
from whole_runs import small_config, start

from clearl.config import RunConfig

MB = 1 << 20
Record = Callable[[str, object], None]


@dataclass(frozen=True)
class Sample:
    """Memory, files and threads of one process after `frames` of training."""

    frames: int
    resident: int
    files: int
    threads: int


def watch(config: RunConfig, out: Path, *, every_s: float) -> dict[str, list[Sample]]:
    """Samples of every process of a run, from its first row to its end, by the name of the process."""
    process, written, samples = start(config, out), RowCounter(out), dict[str, list[Sample]]()
    assert process.pid is not None
    while process.is_alive():
        process.join(every_s)
        trained = written.rows("train")[-1:]
        try:
            family = {"learner": process.pid, **children(process.pid)}
            for name, pid in family.items() if trained else ():
                one = psutil.Process(pid)
                sample = Sample(trained[0]["frames"], one.memory_info().rss, one.num_fds(), one.num_threads())
                samples.setdefault(name, []).append(sample)
        except psutil.NoSuchProcess:
            continue  # it has just ended
    assert process.exitcode == 0
    return samples


def growth_per_million(samples: list[Sample]) -> float:
    """Bytes by which the resident memory grows in a million frames of the second half.

    From its first eighth to its last: the heap grows in steps, most of half a megabyte and one of 2.6, and a shorter
    distance would make one such step look like a slope.
    """
    half = samples[-1].frames / 2
    early = [sample for sample in samples if half <= sample.frames < 1.125 * half]
    late = [sample for sample in samples if sample.frames >= 1.875 * half]
    apart = median(s.frames for s in late) - median(s.frames for s in early)
    return (median(s.resident for s in late) - median(s.resident for s in early)) / apart * 1e6


def assert_steady(samples: list[Sample], name: str) -> None:
    """Assert that files and threads do not grow in the second half, but for those that are open for a moment."""
    half = samples[len(samples) // 2 :]
    middle = len(half) // 2
    for count in ("files", "threads"):
        early, late = ([getattr(sample, count) for sample in part] for part in (half[:middle], half[middle:]))
        assert median(late) <= median(early) and max(late) <= max(early) + 2, f"{name}: {count} grow, {early} {late}"


def check(
    config: RunConfig, out: Path, record: Record, *, processes: Sequence[str], most_mb: float, every_s: float
) -> None:
    shared = shared_memory()
    samples = watch(config, out, every_s=every_s)
    growth = {name: growth_per_million(samples[name]) / MB for name in processes}
    record("growth", ", ".join(f"{name} {grown:+.2f} MB" for name, grown in growth.items()) + " per million frames")
    for name in processes:
        assert_steady(samples[name], name)
    assert shared_memory() <= shared
    assert max(growth.values()) < most_mb, growth


def test_a_run_holds_no_more_at_its_end_than_in_its_middle(tmp_path: Path, record_property: Record) -> None:
    """So short a run is noisy, but a batch that leaks at every update makes 1000 MB in a million frames."""
    config = small_config(
        runtime="local", workers=1, cycles=1, frames_per_visit=20_000, slots=16, batch_unrolls=16, unroll_steps=20,
        buffer_frames=3200, eval_every_frames=10_000, checkpoint_every_frames=4000, record_every_updates=1,
    )  # fmt: skip
    # The evaluator may come to its first evaluation late: it is left to the long form.
    check(config, tmp_path, record_property, processes=("learner", "worker-0"), most_mb=400, every_s=0.05)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_eight_million_frames(tmp_path: Path, record_property: Record) -> None:
    config = small_config(
        runtime="local", workers=2, tasks=("breakout", "asterix"), cycles=8, frames_per_visit=500_000, slots=32,
        batch_unrolls=32, unroll_steps=20, buffer_frames=200_000, eval_every_frames=50_000, eval_episodes=8,
        eval_max_steps=500, checkpoint_every_frames=100_000, record_every_updates=20,
    )  # fmt: skip
    begun = time.monotonic()
    everyone = ("learner", "worker-0", "worker-1", "evaluator")
    check(config, tmp_path, record_property, processes=everyone, most_mb=1.0, every_s=1.0)
    record_property("seconds", round(time.monotonic() - begun))
