"""Task x time: the score on every task at the end of every segment, as a heat map with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clearl.report.arms import label
from clearl.report.formatting import frames
from clearl.report.retention import segment_scores
from clearl.report.run import Arm
from clearl.report.scales import Scale
from clearl.report.style import FAINT, Panels, arm_columns, fit, panel_width, text_width
from clearl.report.task_names import short_names

_MOST_NUMBERS = 13
"""With more segments or tasks than this, cells have no room for numbers."""
_MOST_CELLS = 60
_LONGEST_NAME = 32


def heat_map(new_figure: Any, arms: Sequence[Arm], scales: dict[str, Scale], *, note: str) -> Any:
    """Draw a panel for each arm, with a row for each task and a column for each segment of the plan."""
    tasks = list(scales)
    ends = _column_ends(arms)
    columns = arm_columns(arms) if len(ends) <= 6 else min(2, len(arms))
    rows = -(-len(arms) // columns)
    height = 0.3 if len(tasks) <= _MOST_NUMBERS else 0.15
    names = short_names(tasks, _LONGEST_NAME)
    panels = Panels(
        rows, columns, max(panel_width(columns), 0.36 * min(len(ends), _MOST_NUMBERS)), height * len(tasks) + 0.05,
        left=0.2 + text_width(names), right=0.85, gap_x=0.2, bottom=0.5, gap_y=0.62, note=note,
    )  # fmt: skip
    figure, axes = panels.make(new_figure)
    image = None
    for index, axis in enumerate(axes.ravel()):
        if index >= len(arms):
            axis.axis("off")
            continue
        image = _panel(axis, arms[index], scales, ends)
        axis.set_title(fit(label(arms[index].name), panels.width))
        axis.set_yticks(range(len(tasks)), names, fontsize=8 if height > 0.2 else 6)
        if index % columns:
            axis.tick_params(axis="y", labelleft=False)
    _colour_bar(figure, image, panels)
    return figure


def scores_at(arm: Arm, task: str, scale: Scale, ends: np.ndarray) -> np.ndarray:
    """Return the arm's mean normalised score on the task at each of the frames; NaN where nothing is known."""
    rows = []
    for run in arm.runs:
        exact = dict(zip((min(span.end, run.planned_frames or span.end) for span in run.spans),
                         segment_scores(run, task), strict=True))  # fmt: skip
        curve = run.curves.get(task)
        values = [exact.get(end) if exact.get(end) is not None else _from_curve(curve, end, run.drawn_frames)
                  for end in ends.tolist()]  # fmt: skip
        rows.append([np.nan if score is None else score for score in map(scale.score, values)])
    table = np.array(rows)
    known = np.isfinite(table).sum(axis=0)
    return np.where(known > 0, np.nansum(table, axis=0) / np.maximum(known, 1), np.nan)


def _from_curve(curve: Any, frame: float, drawn_frames: float) -> float | None:
    if curve is None or not curve.frames[0] <= frame <= drawn_frames:
        return None
    return float(curve.at(np.array([frame]))[0])


def _column_ends(arms: Sequence[Arm]) -> np.ndarray:
    """Return the ends of the segments of the plan with most of them; of very many, even steps in their place."""
    plans = [
        [min(span.end, run.planned_frames or span.end) for span in run.spans if np.isfinite(span.end)]
        for arm in arms
        for run in arm.runs
        if run.protocol != "separate"
    ]
    ends = np.unique(max(plans, key=len, default=[]))
    if 2 <= len(ends) <= _MOST_CELLS:
        return ends
    last = max(run.drawn_frames for arm in arms for run in arm.runs)
    return np.linspace(0, last, (8 if len(ends) < 2 else _MOST_CELLS) + 1)[1:]


def _panel(axis: Any, arm: Arm, scales: dict[str, Scale], ends: np.ndarray) -> Any:
    from matplotlib.patches import Rectangle

    shares = np.array([scores_at(arm, task, scale, ends) for task, scale in scales.items()])
    image = axis.imshow(
        np.clip(shares, 0, 1), aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest",
        extent=(-0.5, len(ends) - 0.5, len(scales) - 0.5, -0.5),
    )  # fmt: skip
    with_numbers = len(ends) <= _MOST_NUMBERS and len(scales) <= _MOST_NUMBERS
    run = max(arm.runs, key=lambda run: run.drawn_frames)
    starts = np.concatenate([[0.0], ends[:-1]])
    for row, task in enumerate(scales):
        visits = run.visits(task, until=run.drawn_frames)
        for column, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if any(begin < end and start < stop for begin, stop in visits):
                box = (column - 0.46, row - 0.42), 0.92, 0.84
                axis.add_patch(Rectangle(*box, fill=False, edgecolor="white", linewidth=1.2 if with_numbers else 0.5))
            if with_numbers and np.isfinite(shares[row, column]):
                colour = "#1b2330" if np.clip(shares[row, column], 0, 1) > 0.55 else "white"
                axis.text(column, row, f"{100 * shares[row, column]:.0f}".replace("-", "−"), ha="center", va="center",
                          fontsize=7.5, color=colour)  # fmt: skip
    step = max(1, -(-len(ends) // 6))
    places = range(step - 1, len(ends), step)
    axis.set_xticks([place + 0.5 for place in places], [frames(float(f"{ends[place]:.3g}")) for place in places])
    axis.set_xlabel("end of segment, frames")
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return image


def _colour_bar(figure: Any, image: Any, panels: Panels) -> None:
    width, height = figure.get_size_inches()
    tall = min(1.6, height - panels.below - panels.top)
    place = (1 - 0.7 / width, 1 - (panels.top + tall) / height, 0.12 / width, tall / height)
    bar = figure.colorbar(image, cax=figure.add_axes(place), ticks=[0, 0.5, 1])
    bar.ax.set_yticklabels(["0", "50", "100 %"])
    bar.ax.tick_params(length=0, labelsize=7.5, labelcolor=FAINT)
    bar.outline.set_visible(False)
