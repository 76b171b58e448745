"""A long life: each of very many switches and tasks costs the same rows, and no memory and no open files."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from clearl.config import RunConfig
from clearl.experiment import run
from clearl.records.reader import scan_rows
from clearl.records.schema import Row
from clearl.storage.checkpoints import CheckpointStore

MB = 1 << 20
Record = Callable[[str, object], None]


def smallest_visits(out: Path, tasks: int, switches: int, evaluate: tuple[int, ...]) -> RunConfig:
    """A run that changes its task after every step, through a schedule beside its directory."""
    names = [f"Tiny{number}-v0" for number in range(tasks)]
    segments = "".join(f"- {{tasks: [{name}], frames: 1}}\n" for name in names)
    listed = ", ".join(names[number] for number in evaluate)
    schedule = out.with_suffix(".yaml")
    schedule.write_text(f"segments:\n{segments}evaluate: [{listed}]\nrepeat: {switches // tasks}\n")
    return RunConfig(
        suite=f"gym:{','.join(names)}", imports=("tiny_envs",), protocol="schedule", schedule=str(schedule),
        frames_per_visit=1, runtime="inline", slots=1, batch_unrolls=1, unroll_steps=1, buffer_frames=1000,
        eval_every_frames=10**9, eval_episodes=1, eval_max_steps=1, torso="mlp", record_every_updates=10,
        checkpoint_every_frames=max(50, switches // 10), learner_threads=1,
    )  # fmt: skip


def report(run_dir: Path, out: Path) -> float:
    """Make the report of a run in a process of its own; return its CPU seconds."""
    before = psutil.Process().cpu_times()
    command = [sys.executable, "-m", "clearl", "report", str(run_dir), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=1200)
    after = psutil.Process().cpu_times()
    assert (out / "index.html").stat().st_size < MB
    return after.children_user - before.children_user


class Samples:
    """Memory and open files of this process, at every row of training."""

    def __init__(self) -> None:
        self.resident: list[int] = []
        self.files: list[int] = []

    def __call__(self, row: Row) -> None:
        if row["kind"] == "train":
            self.resident.append(psutil.Process().memory_info().rss)
            self.files.append(psutil.Process().num_fds())


def live(tmp_path: Path, record: Record, *, tasks: int, switches: int, evaluate: tuple[int, ...]) -> float:
    """Make that many switches; assert constant rows a switch and open files; return the growth of memory in MB."""
    out, samples = tmp_path / "run", Samples()
    begun = time.monotonic()
    config = smallest_visits(out, tasks, switches, evaluate)
    assert run(config, out, console=False, listeners=[samples]).status == "finished"
    spent = time.monotonic() - begun
    counts = Counter(row["kind"] for row in scan_rows(out / "metrics.jsonl").rows)
    # A segment as it was planned, begun and ended; every task that is evaluated, at every switch and at the end.
    assert counts["segment"] <= 3 * switches and counts["eval"] <= len(evaluate) * (switches + 2), counts
    half = samples.files[len(samples.files) // 2 :]
    assert max(half) <= max(samples.files[: len(samples.files) // 2]) + 2, "open files grow"
    saved = CheckpointStore(out / "checkpoints").newest()
    assert saved is not None
    nbytes = sum(file.stat().st_size for file in saved.path.iterdir())
    grown = (samples.resident[-1] - samples.resident[len(samples.resident) // 5]) / MB
    seconds = report(out, tmp_path / "report")
    record(
        "switches",
        f"{switches} between {tasks} tasks in {spent:.0f} s: {grown:+.1f} MB from the first fifth on, "
        f"{max(half)} open files, {(out / 'metrics.jsonl').stat().st_size / switches:.0f} bytes of rows a switch, "
        f"checkpoint of {nbytes / 1e3:.0f} KB, report in {seconds:.1f} s of processor",
    )
    return grown


def test_sixty_tasks_in_the_smallest_visits(tmp_path: Path, record_property: Record) -> None:
    assert live(tmp_path, record_property, tasks=60, switches=180, evaluate=(0, 59)) < 40


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_ten_thousand_switches(tmp_path: Path, record_property: Record) -> None:
    assert live(tmp_path, record_property, tasks=2, switches=10_000, evaluate=(0, 1)) < 20


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_report_of_a_hundred_thousand_switches(
    run_factory: Callable[[Path], Callable[..., Path]], tmp_path: Path, record_property: Record
) -> None:
    """The rows are made up by formula: the run itself would take a quarter of an hour."""
    out = run_factory(tmp_path)("clear", cycles=50_000, visit_frames=4, evals_per_visit=1)
    seconds = report(out, tmp_path / "report")
    record_property("report", f"100,000 switches, {seconds:.1f} s of processor")
    assert seconds < 120
