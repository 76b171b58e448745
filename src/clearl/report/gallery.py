"""Choose and draw the figures of a report, with their captions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearl.report import charts, composition, diagnostics, figures, regret_curve
from clearl.report.heat_map import heat_map
from clearl.report.series import cumulative_series, return_series
from clearl.report.style import figure_style, save
from clearl.report.summary import Summary
from clearl.report.tables import seed_counts, seeds_text, suite_of
from clearl.report.task_names import names_note

_CAPTIONS = {
    composition.NAME: composition.CAPTION,
    diagnostics.NAME: diagnostics.CAPTION,
    "returns-by-arm": "Return on every task over training, one panel for each arm. A line is thick while its task is "
    "being trained and thin while it is only evaluated; the strip below each panel shows the schedule.",
    "returns-by-task": "The same returns, one panel for each task, so that the arms can be compared.",
    "cumulative-by-arm": "The mean return over training so far: the area under the curves above, as in the paper's "
    "Appendix B.",
    "cumulative-by-task": "The mean return over training so far, one panel for each task.",
    "cumulative-bars": "Cumulative score: the mean return over all of training.",
    "retention": "What is retained: the score on each task (rows) at the end of each segment (columns), in per cent of "
    "the way from an untrained network to the reference. Frames mark the segments that trained the task; forgetting is "
    "a number that falls outside of its frames.",
    "probe": "Plasticity: mean return on the probe task during its only visit, against where in the sequence that "
    "visit came.",
}


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
    names = names_note(tasks, suite_of(summary))
    drawings: dict[str, Callable[[Any], Any]] = {}
    captions = dict(_CAPTIONS)
    for name, series_of, what in (
        ("returns", return_series, "return"),
        ("cumulative", cumulative_series, "mean return so far"),
    ):
        curves = figures.Curves(arms, tasks, series_of, what, f" {names}" if names else "")
        if curves.fit_by_arm:
            drawings[f"{name}-by-arm"] = curves.by_arm
        if curves.fit_by_task:
            drawings[f"{name}-by-task"] = curves.by_task
    many = max(seed_counts(summary)) > 1
    spread = f"n: {seeds_text(summary)} each. {{}} {names}" if many else f"One seed. {names}"
    whiskers = spread.format("Bars: means; whiskers: ± 1 standard deviation over seeds.").strip()
    if charts.has_bars(summary):
        drawings["cumulative-bars"] = lambda new: charts.bars(new, summary, note=whiskers)
    scales = {task: summary.scales[task] for task in tasks if summary.scales[task].score(0.0) is not None}
    if scales:
        means = spread.format("Means over seeds.").strip()
        drawings["retention"] = lambda new: heat_map(new, arms, scales, note=means)
        if regrets := regret_curve.read(arms, scales):
            band = spread.format("Lines: means; bands: ± 1 standard deviation over seeds.").strip()
            captions[regret_curve.NAME] = regret_curve.caption(arms)
            drawings[regret_curve.NAME] = lambda new: regret_curve.draw(new, regrets, note=band)
    if any(arm.probe is not None and arm.probe.mean is not None for arm in summary.arms.values()):
        points = spread.format("Points: means; whiskers: ± 1 standard deviation over seeds.").strip()
        drawings["probe"] = lambda new: charts.probe(new, summary, note=points)
    if composed := composition.read(arms):
        drawings[composition.NAME] = lambda new: composition.draw(new, composed)
    if diagnosed := diagnostics.read(arms):
        drawings[diagnostics.NAME] = lambda new: diagnostics.draw(new, diagnosed)
    with figure_style() as new_figure:
        saved = {name: save(draw(new_figure), out / name) for name, draw in drawings.items()}
    return [Drawn(name, captions[name], *files) for name, files in saved.items()]
