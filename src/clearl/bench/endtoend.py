"""Measure the achieved rate: a real `clearl run` in a temporary directory, by its own metrics."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clearl.config import RunConfig, to_yaml
from clearl.errors import WorkerError
from clearl.records.reader import read_rows
from clearl.records.schema import METRICS_FILE, Row
from clearl.reproduce.planned import run_command

_WARM_SHARE = 0.15
"""The part of a run that is not counted: shards fill and processes warm up in it."""
_LEAST_ROWS = 8
_INTERVALS = 1.2
"""Evaluation intervals in the shortest run that shows their cost: one after the warm-up."""


@dataclass(frozen=True)
class MeasuredRun:
    """The speed of a run."""

    frames_per_s: float
    """From the end of the warm-up to the last update; start-up and the last evaluation are not in it."""
    frames: int
    seconds: dict[str, dict[str, float]]
    """The seconds of each process, by process and activity."""


def long_enough(config: RunConfig, seconds: float, guess_frames_per_s: float) -> float:
    """Return `seconds`, or more where evaluation would not get its default share of them."""
    return max(seconds, _INTERVALS * config.eval_every_frames / guess_frames_per_s)


def train(
    config: RunConfig, seconds: float, guess_frames_per_s: float, *, warm_share: float = _WARM_SHARE
) -> MeasuredRun:
    """Train for about `seconds`, if the guessed speed is right; the run's length is given in frames."""
    config = sized(config, seconds * guess_frames_per_s)
    with tempfile.TemporaryDirectory(prefix="clearl-bench-") as directory:
        file, out = Path(directory) / "config.yaml", Path(directory) / "run"
        file.write_text(to_yaml(config))
        command = [sys.executable, "-m", *run_command(config, file, out)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise WorkerError(f"the measured run failed: {done.stderr.strip()}")
        rows = read_rows(out / METRICS_FILE)
    frames, rate = achieved(rows, warm_share)
    (summary,) = [row for row in rows if row["kind"] == "summary"]
    return MeasuredRun(rate, frames, summary["seconds"])


def achieved(rows: Sequence[Row], warm_share: float = _WARM_SHARE) -> tuple[int, float]:
    """Return all frames of a run, and its frames per second after the warm-up."""
    marks = [(row["frames"], row["wall_s"]) for row in rows if row["kind"] == "train"]
    if len(marks) < 2:
        raise WorkerError("the measured run was too short for a rate; measure for longer (--seconds)")
    last_frames, last_s = marks[-1]
    first_frames, first_s = next((mark for mark in marks[:-1] if mark[0] >= warm_share * last_frames), marks[-2])
    return last_frames, (last_frames - first_frames) / max(last_s - first_s, 1e-9)


def sized(config: RunConfig, frames: float) -> RunConfig:
    """Return the settings of a run of about `frames` frames that is long enough for a rate."""
    step_frames = config.action_repeat or 1
    least = _LEAST_ROWS * config.record_every_updates * config.batch_unrolls * config.unroll_steps * step_frames
    visits = max(1, len(config.tasks)) * config.cycles
    return replace(config, frames_per_visit=max(1, int(max(frames, least) / visits)))
