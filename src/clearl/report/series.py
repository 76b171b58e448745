"""The lines of a figure: mean and deviation over the seeds of an arm, on one grid of frames."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from clearl.report.metrics import running_cumulative
from clearl.report.run import Arm, Curve, Run

GRID_POINTS = 200
_GAP = 3.0
"""A step between evaluations this many times the usual one is a gap."""
_STEPS_TO_TELL = 4


@dataclass(frozen=True)
class Series:
    """One task of one arm over training."""

    frames: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    """NaN where fewer than two seeds were evaluated."""
    trained: np.ndarray
    """For each interval between two grid points (one fewer than these), whether the task was being trained."""
    measured: np.ndarray
    """The frames at which some seed was evaluated."""
    seeds: int = 1

    def at_measured(self) -> np.ndarray:
        """Return the mean at the frames that were measured."""
        return np.interp(self.measured, self.frames, self.mean)

    def stretches(self) -> Iterator[tuple[slice, bool]]:
        """Yield the grid cut where training of the task begins or ends.

        Neighbours share a point, so that lines meet.
        """
        cuts = np.flatnonzero(np.diff(self.trained)) + 1
        for start, end in zip([0, *cuts], [*cuts, len(self.trained)], strict=True):
            yield slice(start, end + 1), bool(self.trained[start])


def return_series(arm: Arm, task: str) -> Series | None:
    """Build the series of the evaluated return."""
    return _series(arm, task, lambda curve, frames: np.interp(frames, curve.frames, curve.returns))


def cumulative_series(arm: Arm, task: str) -> Series | None:
    """Build the series of the return's mean over training so far (the paper's Appendix B)."""
    return _series(arm, task, running_cumulative)


def _series(arm: Arm, task: str, values: Callable[[Curve, np.ndarray], np.ndarray]) -> Series | None:
    runs = [run for run in arm.runs if task in run.curves and run.drawn_frames > 0]
    if not runs:
        return None
    longest = max(runs, key=lambda run: run.drawn_frames)
    frames = np.union1d(_grid(longest, task), np.concatenate([_few(run.curves[task].frames) for run in runs]))
    frames = frames[(frames > 0) & (frames <= longest.drawn_frames)]
    table = np.full((len(runs), len(frames)), np.nan)
    for row, run in zip(table, runs, strict=True):
        known = (frames >= run.curves[task].frames[0]) & (frames <= run.drawn_frames)
        row[known] = values(run.curves[task], frames[known])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nothing known yet at the left edge: NaN is the right answer
        mean = np.nanmean(table, axis=0)
        std = np.nanstd(table, axis=0, ddof=1)
    middles = (frames[1:] + frames[:-1]) / 2
    trained = np.zeros(len(middles), bool)
    for start, end in longest.visits(task, until=longest.drawn_frames):
        trained |= (middles > start) & (middles < end)
    measured = np.unique(np.concatenate([run.curves[task].frames for run in runs]))
    measured = measured[(measured >= frames[0]) & (measured <= frames[-1])]
    in_gap = np.all([_in_gap(run.curves[task].frames, frames) for run in runs], axis=0)
    mean[in_gap], std[in_gap] = np.nan, np.nan
    return Series(frames, mean, std, trained, measured, len(runs))


def _in_gap(evaluated: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """Mark frames between two evaluations that are much further apart than most: nothing is known there."""
    steps = np.diff(evaluated)
    if len(steps) < _STEPS_TO_TELL:
        return np.zeros(len(frames), bool)
    wide = np.flatnonzero(steps > _GAP * np.median(steps))
    places = np.searchsorted(evaluated, frames, side="left") - 1
    inside = ~np.isin(frames, evaluated) & (frames < evaluated[-1])
    return inside & np.isin(places, wide)


def _few(frames: np.ndarray) -> np.ndarray:
    """Return the frames themselves where they are few enough to add to the grid.

    Else they lie closer than its points.
    """
    return frames if len(frames) <= GRID_POINTS else np.zeros(0)


def _grid(run: Run, task: str) -> np.ndarray:
    """Build even points from just above 0 to the run's end, with the switches among them."""
    end = run.drawn_frames
    even = np.linspace(0, end, GRID_POINTS + 1)[1:]
    switches = _few(np.array([bound for visit in run.visits(task, until=end) for bound in visit if 0 < bound < end]))
    first = min(run.curves[task].frames[0], even[0]) or even[0] * 1e-3
    return np.unique(np.concatenate([[first], even, switches]))
