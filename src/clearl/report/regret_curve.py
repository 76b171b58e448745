"""Regret over training: how far below the reference an arm plays in the world of now, and in all worlds so far.

The reference of a task is the final return of the arm that was trained on it alone, else on all tasks at once (the top
of its `Scale`); an untrained network has a regret of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearl.report.arms import label
from clearl.report.figures import frames_axis
from clearl.report.run import Arm, Run, Span
from clearl.report.scales import Scale
from clearl.report.style import Panels, arm_colours, panel_width

NAME = "regret"
_CAPTION = (
    "Regret over training, in per cent of the way from an untrained network to the reference: {}. Left: in the world "
    "of now, the tasks in training weighted by their shares. Right: the mean over all tasks that were trained so far, "
    "so that what is forgotten counts. Lower is better; below 0 an arm is above the reference."
)
REFERENCES = {
    "separate": "the final return of a network that was trained on that task alone, or at that value of a parameter "
    "alone (Separate)",
    "simultaneous": "the final return of a network that was trained on all tasks at once (Simultaneous), as there are "
    "no runs of Separate",
}
_POINTS = 200
_PANELS = ("the world of now", "all worlds so far")


@dataclass(frozen=True)
class Regret:
    """The regret of one arm, a row for each run; NaN where a run has ended."""

    frames: np.ndarray
    now: np.ndarray
    so_far: np.ndarray


def caption(arms: Sequence[Arm]) -> str:
    """Return the caption of the figure, which says what the regret refers to."""
    names = {arm.name for arm in arms}
    return _CAPTION.format(next(text for name, text in REFERENCES.items() if name in names))


def read(arms: Sequence[Arm], scales: dict[str, Scale]) -> dict[str, Regret]:
    """Compute the regret of every arm with a schedule; empty if there is no arm to compare with."""
    if not any(arm.name in REFERENCES for arm in arms):
        return {}
    known = {arm.name: [run for run in arm.runs if run.curves.keys() & scales.keys() and run.drawn_frames > 0]
             for arm in arms if arm.name not in REFERENCES}  # fmt: skip
    found = {}
    for name, runs in known.items():
        if runs:
            frames = np.linspace(0, max(run.drawn_frames for run in runs), _POINTS)
            pairs = [run_regret(run, scales, frames) for run in runs]
            found[name] = Regret(frames, np.array([now for now, _ in pairs]), np.array([past for _, past in pairs]))
    return found


def run_regret(run: Run, scales: dict[str, Scale], frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the regret of a run [frames] in the world of now, and over the tasks that it has met so far."""
    tasks = [task for task in scales if task in run.curves]
    regrets = np.array([[1 - _score(scales[task], value) for value in run.curves[task].at(frames)] for task in tasks])
    shares = np.array([task_shares(run.spans, task, frames) for task in tasks])
    met = np.maximum.accumulate(shares > 0, axis=1)
    regrets[:, frames > run.drawn_frames] = np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        return (regrets * shares).sum(0) / shares.sum(0), (regrets * met).sum(0) / met.sum(0)


def task_shares(spans: Sequence[Span], task: str, frames: np.ndarray) -> np.ndarray:
    """Return the share of a task in training at each of the frames."""
    shares = np.zeros(len(frames))
    for span in spans:
        inside = (frames >= span.start) & ((frames < span.end) | (span is spans[-1]))
        if task not in span.tasks or not inside.any():
            continue
        place, equal = span.tasks.index(task), (1.0,) * len(span.tasks)
        start = span.weights if len(span.weights) == len(span.tasks) else equal
        end = span.end_weights if len(span.end_weights) == len(span.tasks) else start
        passed = np.clip((frames[inside] - span.start) / max(span.end - span.start, 1e-9), 0, 1)
        shares[inside] = start[place] / sum(start) * (1 - passed) + end[place] / sum(end) * passed
    return shares


def draw(new_figure: Any, regrets: dict[str, Regret], *, note: str) -> Any:
    """Draw a panel for the world of now and one for all worlds so far, with a line for each arm."""
    colours = arm_colours(list(regrets))
    figure, axes = Panels(1, 2, panel_width(2), 1.9, top=0.75, bottom=0.55, note=note).make(new_figure)
    for axis, title, kind in zip(axes[0], _PANELS, ("now", "so_far"), strict=True):
        for name, regret in regrets.items():
            _line(axis, regret.frames, 100 * getattr(regret, kind), colours[name], label(name))
        axis.axhline(0, color="0.6", linewidth=0.6)
        axis.set_title(title)
        frames_axis(axis, named=True)
    axes[0][0].set_ylabel("regret, %")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="upper left", bbox_to_anchor=(0, 1), ncols=4, handlelength=1.2)
    return figure


def _line(axis: Any, frames: np.ndarray, rows: np.ndarray, colour: str, name: str) -> None:
    known = np.isfinite(rows).any(0)
    mean, std = np.nanmean(rows[:, known], axis=0), np.nanstd(rows[:, known], axis=0)
    if len(rows) > 1:
        axis.fill_between(frames[known], mean - std, mean + std, color=colour, alpha=0.16, linewidth=0)
    axis.plot(frames[known], mean, color=colour, linewidth=1.4, label=name)


def _score(scale: Scale, value: float) -> float:
    score = scale.score(float(value))
    return np.nan if score is None else score
