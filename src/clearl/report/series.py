"""What a figure draws: mean and deviation over the seeds of an arm, on one grid of frames."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from clearl.report.metrics import running_cumulative
from clearl.report.run import Arm, Curve, Run

GRID_POINTS = 200


@dataclass(frozen=True)
class Series:
    """One task of one arm over training."""

    frames: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    """NaN where fewer than two seeds were evaluated."""
    trained: np.ndarray
    """For each interval between two grid points (one fewer than these), whether the task was being trained."""

    def stretches(self) -> Iterator[tuple[slice, bool]]:
        """The grid cut where training of the task begins or ends; neighbours share a point, so that lines meet."""
        cuts = np.flatnonzero(np.diff(self.trained)) + 1
        for start, end in zip([0, *cuts], [*cuts, len(self.trained)], strict=True):
            yield slice(start, end + 1), bool(self.trained[start])


def return_series(arm: Arm, task: str) -> Series | None:
    """The evaluated return."""
    return _series(arm, task, lambda curve, frames: np.interp(frames, curve.frames, curve.returns))


def cumulative_series(arm: Arm, task: str) -> Series | None:
    """Its mean over training so far (the paper's Appendix B)."""
    return _series(arm, task, running_cumulative)


def _series(arm: Arm, task: str, values: Callable[[Curve, np.ndarray], np.ndarray]) -> Series | None:
    runs = [run for run in arm.runs if task in run.curves and run.end_frames > 0]
    if not runs:
        return None
    longest = max(runs, key=lambda run: run.end_frames)
    frames = _grid(longest, task)
    table = np.full((len(runs), len(frames)), np.nan)
    for row, run in zip(table, runs, strict=True):
        known = (frames >= run.curves[task].frames[0]) & (frames <= run.end_frames)
        row[known] = values(run.curves[task], frames[known])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nothing known yet at the left edge: NaN is the right answer
        mean = np.nanmean(table, axis=0)
        std = np.nanstd(table, axis=0, ddof=1)
    middles = (frames[1:] + frames[:-1]) / 2
    trained = np.zeros(len(middles), bool)
    for start, end in longest.visits(task):
        trained |= (middles > start) & (middles < end)
    return Series(frames, mean, std, trained)


def _grid(run: Run, task: str) -> np.ndarray:
    """Even points from just above 0 to the run's end, with the switches among them."""
    even = np.linspace(0, run.end_frames, GRID_POINTS + 1)[1:]
    switches = [bound for visit in run.visits(task) for bound in visit if 0 < bound < run.end_frames]
    first = min(run.curves[task].frames[0], even[0]) or even[0] * 1e-3
    return np.unique(np.concatenate([[first], even, switches]))
