"""The effect of an absence on a task, and the scores of all tasks at the end of every segment.

An *absence* of a task is the time from the end of a visit to the start of the next, or to the end of the run; it lasts
at least one whole segment of the plan. Its two scores are evaluations made exactly at these switches. Runs of older
versions have none; there it is the evaluations next before, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clearl.report.metrics import mean_over, score_at, switch_score
from clearl.report.run import Curve, Run

LEARNT_SHARE = 0.05
"""Visits that end below this share of the task's best score have learnt nothing that could be kept."""


@dataclass(frozen=True)
class Absence:
    """The scores on a task when it was left and when it came back, and the mean score in between."""

    learnt: float
    after: float
    mean_between: float
    at_switches: bool
    """True if both scores are evaluations made exactly at the switches."""


def absences(run: Run, task: str) -> list[Absence]:
    """Return every absence of the task whose two scores are known."""
    key = "absences", task
    if key not in run.memo:
        run.memo[key] = _absences(run, task)
    return run.memo[key]


def _absences(run: Run, task: str) -> list[Absence]:
    visits = run.visits(task)
    returns_at = [start for start, _ in visits[1:]] + [run.end_frames] * bool(visits)
    found = []
    for (start, left), back in zip(visits, returns_at, strict=True):
        if not run.is_whole_absence(left, back):
            continue
        learnt, after = score_at(run, task, left, after=start), score_at(run, task, back, after=left)
        if learnt is not None and after is not None:
            exact = None not in (switch_score(run, task, left), switch_score(run, task, back))
            found.append(Absence(learnt, after, _mean_between(run.curves[task], left, learnt, back, after), exact))
    return found


def forgetting(run: Run, task: str) -> float | None:
    """Return the mean drop over the task's absences.

    Score at the end of the visit, minus score at the end of the absence.
    """
    drops = [absence.learnt - absence.after for absence in absences(run, task)]
    return float(np.mean(drops)) if drops else None


def kept(run: Run, task: str, floor: float) -> float | None:
    """Return the share of the score above the floor that was kept over the absences.

    The sum of the scores at the ends of the absences over the sum of the scores when the task was left: absences before
    which little was learnt weigh little, so that no ratio of two small numbers decides.
    """
    return _share(run, task, floor, lambda absence: absence.after)


def area_lost(run: Run, task: str, floor: float) -> float | None:
    """Return the share of the score at the end of the visit that was missing while away, mean over the time away."""
    share = _share(run, task, floor, lambda absence: absence.mean_between)
    return None if share is None else 1 - share


def segment_scores(run: Run, task: str) -> list[float | None]:
    """Return one row of the task x time matrix: the score at the end of each segment that the run has finished."""
    ends = [(span.start, min(span.end, run.planned_frames or span.end)) for span in run.spans]
    return [score_at(run, task, end, after=start) if end <= run.drawn_frames else None for start, end in ends]


def _share(run: Run, task: str, floor: float, value: Callable[[Absence], float]) -> float | None:
    found = absences(run, task)
    if not found:
        return None
    learnt = sum(absence.learnt - floor for absence in found)
    best = float(run.curves[task].returns.max()) - floor
    if learnt <= LEARNT_SHARE * max(best, 0.0) * len(found):
        return None
    return float(sum(value(absence) - floor for absence in found) / learnt)


def _mean_between(curve: Curve, left: float, learnt: float, back: float, after: float) -> float:
    inner = (curve.frames > left) & (curve.frames < back)
    frames = np.concatenate([[left], curve.frames[inner], [back]])
    return mean_over(Curve(frames, np.concatenate([[learnt], curve.returns[inner], [after]])), left, back)
