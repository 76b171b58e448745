"""The cost of a schedule alone: the score of a learner that forgets nothing, and the regret to it.

A task that comes late has a low mean return over training however well it is kept. The oracle takes the return of a
reference after n frames of the task, and computes the score that this schedule would give if every frame of the task
taught as much as it taught the reference and nothing were ever forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearl.report import metrics
from clearl.report.run import Curve, Run

_POINTS = 400


def own_frames(run: Run, task: str, at: np.ndarray) -> np.ndarray:
    """Return how many frames of the task the run has trained by each frame of the axis."""
    total = np.zeros(len(at))
    for span in run.spans:
        end = min(span.end, run.planned_frames or span.end)
        total += span.share(task) * np.clip(at - span.start, 0.0, max(0.0, end - span.start))
    return total / run.frames_scale


def learning_curve(runs: Sequence[Run], task: str) -> Curve | None:
    """Return the mean return over the runs against their frames of the task."""
    seen = [run for run in runs if task in run.curves and run.end_frames > 0]
    if not seen:
        return None
    curves = []
    for run in seen:
        frames = run.curves[task].frames
        own, last = np.unique(own_frames(run, task, frames)[::-1], return_index=True)
        curves.append(Curve(own, run.curves[task].returns[::-1][last]))
    grid = np.unique(np.concatenate([curve.frames for curve in curves]))
    return Curve(grid, np.mean([curve.at(grid) for curve in curves], axis=0))


def oracle(run: Run, task: str, reference: Curve) -> float | None:
    """Return the cumulative score of this run's schedule, had it learnt as the reference does and forgotten nothing."""
    if run.end_frames <= 0 or task not in run.curves:
        return None
    bounds = [bound for span in run.spans for bound in (span.start, span.end) if 0 < bound < run.end_frames]
    frames = np.union1d(np.linspace(0, run.end_frames, _POINTS), bounds)
    return metrics.mean_over(Curve(frames, reference.at(own_frames(run, task, frames))), 0.0, run.end_frames)


def regret(run: Run, task: str, alone: Curve | None) -> float | None:
    """Return the mean over training of what a network that saw the task alone returns after as many frames of it, minus
    what this run returns."""
    ours, theirs = metrics.cumulative(run, task), None if alone is None else oracle(run, task, alone)
    return None if ours is None or theirs is None else theirs - ours
