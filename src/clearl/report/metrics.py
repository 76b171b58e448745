"""Measures of one run on one task. Every measure is None where the run lacks the data.

The *evaluated return* between two evaluations is the straight line between them; before the first and after the last
it stays as it is. The *score at frame t* is the evaluation made exactly at a switch where there was one, else the mean
of the evaluations in the last 2 % of the run's planned frames before t (t included), or the last one before t where
that stretch holds none. docs/metrics.md has every formula.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from clearl.report.run import Curve, Run

SCORE_WINDOW = 0.02
"""Long enough to average a few evaluations, short against a visit."""


def cumulative(run: Run, task: str) -> float | None:
    """Return the paper's measure (Appendix B): the mean of the evaluated return over all of training."""
    return mean_return(run, task, 0.0, run.end_frames)


def mean_return(run: Run, task: str, start: float, end: float) -> float | None:
    """Return the mean of the evaluated return from frame `start` to frame `end`."""
    curve = run.curves.get(task)
    return None if curve is None or end <= start else mean_over(curve, start, end)


def mean_over(curve: Curve, start: float, end: float) -> float:
    """Return the mean of a curve between two frames."""
    inner = (curve.frames > start) & (curve.frames < end)
    frames = np.concatenate([[start], curve.frames[inner], [end]])
    values = curve.at(frames)
    return float(np.sum(np.diff(frames) * (values[1:] + values[:-1]) / 2) / (end - start))


def running_cumulative(curve: Curve, at: np.ndarray) -> np.ndarray:
    """Return the mean of the evaluated return from frame 0 to each of the frames `at` > 0."""
    frames = np.union1d(np.union1d(curve.frames, at), [0.0])
    values = curve.at(frames)
    areas = np.concatenate([[0.0], np.cumsum(np.diff(frames) * (values[1:] + values[:-1]) / 2)])
    return areas[np.searchsorted(frames, at)] / at


def final(run: Run, task: str) -> float | None:
    """Return the score at the end of training."""
    return score_at(run, task, run.end_frames)


def final_success(run: Run, task: str) -> float | None:
    """Return the share of episodes that reached the goal, at the end of training."""
    return success_at(run, task, run.end_frames)


def score_at(run: Run, task: str, frame: float, *, after: float = -np.inf) -> float | None:
    """Return the score at `frame`; only evaluations later than `after` count, and None if there are none."""
    measured = switch_score(run, task, frame)
    return measured if measured is not None else _recent(run, run.curves.get(task), frame, after)


def switch_score(run: Run, task: str, frame: float) -> float | None:
    """Look up the evaluation made exactly at the end of the segment that ends at `frame`."""
    segment = run.segment_ending_at(frame)
    return None if segment is None else run.switches.get(task, {}).get(segment)


def success_at(run: Run, task: str, frame: float, *, after: float = -np.inf) -> float | None:
    """Return the success rate at `frame`, by the same rule as the score."""
    return _recent(run, run.success.get(task), frame, after)


def _recent(run: Run, curve: Curve | None, frame: float, after: float) -> float | None:
    if curve is None:
        return None
    window = SCORE_WINDOW * (run.planned_frames or run.end_frames)
    before = (curve.frames <= frame) & (curve.frames > after)
    recent = before & (curve.frames > frame - window)
    if recent.any():
        return float(curve.returns[recent].mean())
    return float(curve.returns[before][-1]) if before.any() else None


def backward_transfer(run: Run, task: str) -> float | None:
    """Return the final score minus the score at the end of the first visit: the effect of all later training."""
    visits = run.visits(task)
    if not visits or visits[0][1] >= run.end_frames:
        return None
    first, last = score_at(run, task, visits[0][1], after=visits[0][0]), final(run, task)
    return None if first is None or last is None else last - first


RECOVERED = 0.9
"""Share of the old score, from the floor on, at which a task counts as recovered."""


def recovery_frames(run: Run, task: str, floor: float) -> float | None:
    """Count frames after coming back to the task until its return is what it was when it was left, less a tenth.

    Mean over all visits but the first; a visit that does not get there counts with its length.
    """
    visits, curve = run.visits(task), run.curves.get(task)
    taken = []
    for (_, left), (start, end) in pairwise(visits):
        score = score_at(run, task, left)
        if curve is None or score is None or score <= floor:
            continue
        reached = (
            (curve.frames >= start) & (curve.frames <= end) & (curve.returns >= floor + RECOVERED * (score - floor))
        )
        taken.append(float(curve.frames[reached][0]) - start if reached.any() else end - start)
    return float(np.mean(taken)) if taken else None


def first_visit_mean(run: Run, task: str) -> float | None:
    """Return the mean of the evaluated return over the task's first visit: how fast it was learnt."""
    visits = run.visits(task)
    return mean_return(run, task, *visits[0]) if visits else None


def forward_transfer(run: Run, task: str, separate: list[Run]) -> float | None:
    """Return how much better the first visit went than the same frames of a network that only ever saw this task.

    Mean return over the first visit, minus that of the `separate` runs over as many frames of their own (mean over
    their seeds). On the x-axis, which sums the frames of all tasks, those take `frames_scale` times as long.
    """
    visits = run.visits(task)
    ours = first_visit_mean(run, task)
    if ours is None:
        return None
    frames = visits[0][1] - visits[0][0]
    theirs = [mean_return(other, task, 0.0, frames * other.frames_scale) for other in separate]
    known = [value for value in theirs if value is not None]
    return ours - float(np.mean(known)) if known else None


def probe_mean(run: Run) -> float | None:
    """Return the mean of the evaluated return over the probe's visit, a measure of plasticity."""
    return first_visit_mean(run, run.probe_task) if run.probe_task else None
