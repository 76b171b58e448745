"""Scores from the return of an untrained network (0) to a reference (1), so that negative returns have shares too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clearl.report import metrics
from clearl.report.run import Arm


@dataclass(frozen=True)
class Scale:
    """The two fixed points of one task's scores."""

    floor: float
    """The mean evaluation before any training, over all runs."""
    top: float | None
    """The mean final return of the arm that sees each task alone, else of all tasks at once, else of the best arm."""
    is_measured: bool = True
    """True if the floor was evaluated; else it is 0, or the least return seen where that is below 0."""

    def score(self, value: float | None) -> float | None:
        """Scale a return: 0 at the floor, 1 at the top."""
        if value is None or self.top is None or self.top <= self.floor:
            return None
        return (value - self.floor) / (self.top - self.floor)


def task_scales(arms: Sequence[Arm], tasks: Sequence[str]) -> dict[str, Scale]:
    """Return the scale of every task."""
    return {task: _scale(arms, task) for task in tasks}


def _scale(arms: Sequence[Arm], task: str) -> Scale:
    floor, is_measured = task_floor(arms, task)
    finals = {arm.name: _mean_final(arm, task) for arm in arms}
    known = {name: value for name, value in finals.items() if value is not None}
    for name in ("separate", "simultaneous"):
        if name in known:
            return Scale(floor, known[name], is_measured)
    return Scale(floor, max(known.values(), default=None), is_measured)


def task_floor(arms: Sequence[Arm], task: str) -> tuple[float, bool]:
    """Find the mean return before any training, and whether it was evaluated."""
    curves = [run.curves[task] for arm in arms for run in arm.runs if task in run.curves]
    untrained = [curve.returns[0] for curve in curves if curve.frames[0] == 0]
    if untrained:
        return float(np.mean(untrained)), True
    return min([0.0, *(float(curve.returns.min()) for curve in curves)]), False


def _mean_final(arm: Arm, task: str) -> float | None:
    values = [value for run in arm.runs if (value := metrics.final(run, task)) is not None]
    return float(np.mean(values)) if values else None
