"""Compute what the claims compare: samples over seeds from arms, and effects from samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from clearl.report import metrics, retention
from clearl.report.run import Arm, Run
from clearl.report.scales import task_floor

Sample = np.ndarray
"""Values of one arm, [seeds] or [seeds, tasks]."""


def finished(arm: Arm) -> list[Run]:
    """Return the finished runs of an arm: only these count."""
    return [run for run in arm.runs if run.is_finished]


def cumulative(arms: Sequence[Arm]) -> list[Sample] | None:
    """Return cumulative scores on the tasks that all arms evaluated."""
    return _matrices(arms, metrics.cumulative, shared_tasks(arms))


def new_task_means(arms: Sequence[Arm]) -> list[Sample] | None:
    """Return means over the first visit of each task but the first: only then is there experience to replay."""
    return _matrices(arms, metrics.first_visit_mean, new_tasks(arms))


def kept(arms: Sequence[Arm]) -> list[Sample] | None:
    """Return the share kept [seeds, tasks]; NaN where a run has learnt nothing that it could keep."""
    tasks = shared_tasks(arms)
    if not tasks:
        return None
    floors = {task: task_floor(arms, task)[0] for task in tasks}
    samples = []
    for arm in arms:
        rows = [[retention.kept(run, task, floors[task]) for task in tasks] for run in finished(arm)]
        table = np.array(rows, dtype=float).reshape(-1, len(tasks))
        samples.append(table[np.isfinite(table).any(axis=1)])
    return samples


def probe_means(arms: Sequence[Arm]) -> list[Sample] | None:
    """Return the probe's mean return over its visit, for each position, counted from the floor."""
    task = arms[0].runs[0].probe_task
    floor = task_floor(arms, task)[0] if task else 0.0
    means = [[metrics.probe_mean(run) for run in finished(arm)] for arm in arms]
    return [np.array([mean - floor for mean in row if mean is not None]) for row in means]


def _matrices(
    arms: Sequence[Arm], measure: Callable[[Run, str], float | None], tasks: Sequence[str]
) -> list[Sample] | None:
    """Return for each arm [seeds, tasks], counted from the floor of each task; runs that miss a task are left out."""
    if not tasks:
        return None
    floors = np.array([task_floor(arms, task)[0] for task in tasks])
    rows = [[[measure(run, task) for task in tasks] for run in finished(arm)] for arm in arms]
    return [
        np.array([row for row in arm if None not in row], dtype=float).reshape(-1, len(tasks)) - floors for arm in rows
    ]


def shared_tasks(arms: Sequence[Arm]) -> list[str]:
    """Return the tasks that every finished run of the arms evaluated: the columns of `cumulative` and `kept`."""
    return [task for task in arms[0].tasks if all(task in run.curves for arm in arms for run in finished(arm))]


def new_tasks(arms: Sequence[Arm]) -> list[str]:
    """Return the tasks of the columns of `new_task_means`."""
    return shared_tasks(arms)[1:]


def ratio(ours: Sample, theirs: Sample) -> float:
    """Return the score as a share of the other arm's, mean over the tasks."""
    below = theirs.mean(0)
    return float(np.mean(ours.mean(0) / below)) if (below > 0).all() else np.nan


def ratio_to_best(ours: Sample, *others: Sample) -> float:
    """Return the score as a share of the best other arm's."""
    ratios = [ratio(ours, other) for other in others]
    return min(ratios) if np.isfinite(ratios).all() else np.nan


def position_between(middle: Sample, low: Sample, high: Sample) -> float:
    """Return an arm's position between two others: 0 at the lower, 1 at the upper; all tasks have equal weight."""
    scale = high.mean(0)
    if not (scale > 0).all():
        return np.nan
    bottom, here = (float(np.mean(sample.mean(0) / scale)) for sample in (low, middle))
    return (here - bottom) / (1 - bottom) if bottom < 1 else np.nan


def mean(sample: Sample) -> float:
    """Return the mean over the tasks of a run where it is known, then over seeds; NaN where no run knows it."""
    known = sample[np.isfinite(sample).any(axis=1)]
    return float(np.nanmean(known, axis=1).mean()) if len(known) else np.nan


def drift_difference(*positions: Sample) -> float:
    """Return an arm's drift minus the baseline's; the first half of the samples is the arm's, position by position."""
    half = len(positions) // 2
    return drift(*positions[:half]) - drift(*positions[half:])


def drift(*positions: Sample) -> float:
    """Return the probe's change from first to last position (a line through the means), as a share of its mean."""
    means = np.array([sample.mean() for sample in positions])
    if means.mean() <= 0:
        return np.nan
    slope = np.polyfit(np.arange(len(means)), means, 1)[0]
    return float(slope * (len(means) - 1) / means.mean())
