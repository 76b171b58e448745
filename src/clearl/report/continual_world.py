"""The metrics of Continual World (Wolczyk et al. 2021) under its definitions, which differ from ours of the same names.

Their performance p is a success rate. Where an environment does not report success, p
is the return on the scale from an
untrained network to the reference. Tasks of theirs are trained once; where a task is visited again, "the end of its
training" is the end of its last visit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearl.report.metrics import mean_over, score_at, success_at
from clearl.report.run import Curve, Run
from clearl.report.scales import Scale


def performance(run: Run, task: str, scale: Scale) -> float | None:
    """p_i(T): at the end of the run. Its mean over the tasks is their average performance."""
    return _at(run, task, scale, run.end_frames)


def forgetting(run: Run, task: str, scale: Scale) -> float | None:
    """F_i = p_i(end of its training) - p_i(T)."""
    visits = run.visits(task)
    if not visits:
        return None
    learnt, last = _at(run, task, scale, visits[-1][1], after=visits[-1][0]), performance(run, task, scale)
    return None if learnt is None or last is None else learnt - last


def forward_transfer(run: Run, task: str, scale: Scale, separate: Sequence[Run]) -> float | None:
    """FT_i = (AUC_i - AUC_i^alone) / (1 - AUC_i^alone), each the mean of p_i over the frames of the first visit."""
    visits = run.visits(task)
    if not visits:
        return None
    start, end = visits[0]
    ours = _mean(run, task, scale, start, end)
    alone = [_mean(other, task, scale, 0.0, (end - start) * other.frames_scale) for other in separate]
    known = [value for value in alone if value is not None]
    if ours is None or not known or np.mean(known) >= 1:
        return None
    return float((ours - np.mean(known)) / (1 - np.mean(known)))


def _at(run: Run, task: str, scale: Scale, frame: float, *, after: float = -np.inf) -> float | None:
    if task in run.success:
        return success_at(run, task, frame, after=after)
    return scale.score(score_at(run, task, frame, after=after))


def _mean(run: Run, task: str, scale: Scale, start: float, end: float) -> float | None:
    if task in run.success:
        return mean_over(run.success[task], start, end)
    curve: Curve | None = run.curves.get(task)
    return None if curve is None else scale.score(mean_over(curve, start, end))
