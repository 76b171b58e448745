"""Which figures a report has, with their captions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearl.report import charts, figures
from clearl.report.run import Arm
from clearl.report.series import cumulative_series, return_series
from clearl.report.style import figure_style, save
from clearl.report.summary import Summary

_CAPTIONS = {
    "returns-by-arm": "Return on every task over training, one panel for each arm. A line is thick while its task is "
    "being trained and thin while it is only evaluated; the strip below each panel shows the schedule.",
    "returns-by-task": "The same returns, one panel for each task, so that the arms can be compared.",
    "cumulative-by-arm": "The mean return over training so far: the area under the curves above, as in the paper's "
    "Appendix B.",
    "cumulative-by-task": "The mean return over training so far, one panel for each task.",
    "cumulative-bars": "Cumulative score: the mean return over all of training.",
    "retention": "What is retained: the return on each task over training, as a share of the best that any arm reached "
    "on it. Frames mark when a task was trained; forgetting is a row that darkens outside of its frames.",
    "probe": "Plasticity: mean return on the probe task during its only visit, against where in the sequence that "
    "visit came.",
}
_SPREAD = {
    "returns-by-arm": " Mean over seeds; the band is one standard deviation.",
    "cumulative-by-arm": " Mean over seeds; the band is one standard deviation.",
    "returns-by-task": " Mean over seeds.",
    "cumulative-by-task": " Mean over seeds.",
    "cumulative-bars": " Mean over seeds; whiskers are one standard deviation.",
    "retention": " Mean over seeds.",
    "probe": " Mean over seeds; whiskers are one standard deviation.",
}
"""What to add where there is more than one seed."""


@dataclass(frozen=True)
class Drawn:
    """A figure on disk."""

    name: str
    caption: str
    svg: Path
    png: Path


def draw_all(summary: Summary, out: Path) -> list[Drawn]:
    """Draw every figure that the runs have data for into the directory `out`."""
    out.mkdir(parents=True, exist_ok=True)
    arms = [arm.arm for arm in summary.arms.values() if any(run.curves and run.end_frames > 0 for run in arm.arm.runs)]
    tasks = [task for task in summary.tasks if any(task in run.curves for arm in arms for run in arm.runs)]
    if not tasks:
        return []
    drawings: dict[str, Callable[[Any], Any]] = {}
    for name, series_of, what in (
        ("returns", return_series, "return"),
        ("cumulative", cumulative_series, "mean return so far"),
    ):
        curves = figures.Curves(arms, tasks, series_of, what)
        if curves.fit_by_arm:
            drawings[f"{name}-by-arm"] = curves.by_arm
        if curves.fit_by_task:
            drawings[f"{name}-by-task"] = curves.by_task
    drawings["cumulative-bars"] = lambda new: charts.bars(new, summary)
    drawings["retention"] = lambda new: charts.retention(new, arms, tasks)
    if any(arm.probe is not None and arm.probe.mean is not None for arm in summary.arms.values()):
        drawings["probe"] = lambda new: charts.probe(new, summary)
    with figure_style() as new_figure:
        saved = {name: save(draw(new_figure), out / name) for name, draw in drawings.items()}
    return [Drawn(name, _caption(name, arms), *files) for name, files in saved.items()]


def _caption(name: str, arms: Sequence[Arm]) -> str:
    return _CAPTIONS[name] + (_SPREAD[name] if any(len(arm.runs) > 1 for arm in arms) else "")
