"""A long life: each of very many switches and tasks costs the same rows, and no memory and no open files."""

from __future__ import annotations

import os
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


def report(run_dir: Path, out: Path) -> tuple[float, float]:
    """Make the report of a run in a process of its own; return its CPU seconds and its largest memory in MB."""
    command = [sys.executable, "-m", "clearl", "report", str(run_dir), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert (out / "index.html").stat().st_size < MB
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


class Samples:
    """Memory, open files and processor time of this process, at every row of training."""

    def __init__(self) -> None:
        self.resident: list[int] = []
        self.files: list[int] = []
        self.times: list[float] = []

    def __call__(self, row: Row) -> None:
        if row["kind"] == "train":
            self.resident.append(psutil.Process().memory_info().rss)
            self.files.append(psutil.Process().num_fds())
            self.times.append(time.process_time())

    @property
    def growth_mb(self) -> float:
        """The growth of memory from the end of the first fifth of the rows on."""
        return (self.resident[-1] - self.resident[len(self.resident) // 5]) / MB

    @property
    def last_fifth(self) -> float:
        """The processor time of the last fifth of the rows over that of the second fifth."""
        fifth = len(self.times) // 5
        return (self.times[-1] - self.times[-1 - fifth]) / (self.times[2 * fifth] - self.times[fifth])


def live(tmp_path: Path, record: Record, *, tasks: int, switches: int, evaluate: tuple[int, ...]) -> Samples:
    """Make that many switches; assert constant rows a switch and open files; return what the process used."""
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
    rows = sum(file.stat().st_size for file in out.glob("metrics*"))
    meta = (out / "meta.json").stat().st_size
    seconds, report_mb = report(out, tmp_path / "report")
    record(
        "switches",
        f"{switches} between {tasks} tasks in {spent:.0f} s: {samples.growth_mb:+.1f} MB of "
        f"{samples.resident[-1] / MB:.0f} from the first fifth on, {max(half)} open files, "
        f"{rows / switches:.0f} bytes of rows a switch, meta.json of {meta / 1e3:.0f} KB, "
        f"checkpoint of {nbytes / 1e3:.0f} KB, the last fifth of updates took {samples.last_fifth:.2f} of the "
        f"second's time, report in {seconds:.1f} s of processor, {report_mb:.0f} MB",
    )
    return samples


def test_sixty_tasks_in_the_smallest_visits(tmp_path: Path, record_property: Record) -> None:
    assert live(tmp_path, record_property, tasks=60, switches=180, evaluate=(0, 59)).growth_mb < 40


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("switches", [10_000, 100_000])
def test_very_many_switches(tmp_path: Path, record_property: Record, switches: int) -> None:
    """An update late in the run also costs what an early one does, which takes thousands of switches to see."""
    samples = live(tmp_path, record_property, tasks=2, switches=switches, evaluate=(0, 1))
    assert samples.growth_mb < 20
    assert samples.last_fifth < 1.5
