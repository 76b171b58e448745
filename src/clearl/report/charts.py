"""The figures beside the curves: bars of the cumulative table, a heat map of retention, the probe's return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clearl.report.arms import base_name, label
from clearl.report.figures import frames_axis
from clearl.report.formatting import number
from clearl.report.run import Arm
from clearl.report.series import return_series
from clearl.report.style import FAINT, INK, Panels, arm_colours, grid_columns, text_width
from clearl.report.summary import Summary


def bars(new_figure: Any, summary: Summary) -> Any:
    """The table of cumulative scores as bars, a panel for each task."""
    names = [name for name, arm in summary.arms.items() if arm.mean("cumulative") is not None]
    columns = min(len(summary.tasks), 3)
    rows = -(-len(summary.tasks) // columns)
    left = 0.25 + text_width([label(name) for name in names])
    panels = Panels(
        rows, columns, 2.5, 0.24 * len(names) + 0.1, left=left, right=0.2, bottom=0.35, gap_x=0.3, gap_y=0.6
    )
    figure, axes = panels.make(new_figure)
    colours = arm_colours(names)
    for index, axis in enumerate(axes.ravel()):
        if index >= len(summary.tasks):
            axis.set_visible(False)
            continue
        _bar_panel(axis, summary, summary.tasks[index], names, colours)
        if index % columns:
            axis.tick_params(axis="y", labelleft=False)
    return figure


def retention(new_figure: Any, arms: Sequence[Arm], tasks: Sequence[str]) -> Any:
    """Task x time: how much of the best score on the task is there."""
    columns = grid_columns(arms)
    rows = -(-len(arms) // columns)
    panels = Panels(
        rows, columns, 2.9, 0.27 * len(tasks) + 0.05, left=0.2 + text_width(tasks), right=0.75, gap_x=0.2, bottom=0.5
    )
    figure, axes = panels.make(new_figure)
    shares = _shares(arms, tasks)
    image = None
    for index, axis in enumerate(axes.ravel()):
        if index >= len(arms):
            axis.set_visible(False)
            continue
        image = _heat_panel(axis, arms[index], tasks, shares[index])
        axis.set_title(label(arms[index].name))
        frames_axis(axis, named=index + columns >= len(arms))
        if index % columns:
            axis.tick_params(axis="y", labelleft=False)
    width, height = figure.get_size_inches()
    place = (1 - 0.6 / width, panels.bottom / height, 0.12 / width, 1 - (panels.bottom + panels.top) / height)
    bar = figure.colorbar(image, cax=figure.add_axes(place), ticks=[0, 1])
    bar.ax.set_yticklabels(["0", "best"])
    bar.outline.set_visible(False)
    return figure


def probe(new_figure: Any, summary: Summary) -> Any:
    """The probe's return against its position, a line for each method."""
    figure, axes = Panels(1, 1, 4.6, 2.3, top=0.12).make(new_figure)
    axis = axes[0][0]
    probed = [arm for arm in summary.arms.values() if arm.probe is not None and arm.probe.mean is not None]
    bases = list(dict.fromkeys(base_name(arm.arm.name) for arm in probed))
    colours = arm_colours(bases)
    for index, base in enumerate(bases):
        points = [(arm.arm.probe_position, arm.probe) for arm in probed if base_name(arm.arm.name) == base]
        axis.errorbar(
            [position for position, _ in points],
            [stat.mean for _, stat in points if stat],
            yerr=[stat.std or 0.0 for _, stat in points if stat],
            color=colours[base], marker="osD^v"[index % 5], markersize=5, capsize=3, linewidth=1.6, elinewidth=1,
            label=label(base),
        )  # fmt: skip
    axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    axis.set_xticks(sorted({arm.arm.probe_position for arm in probed if arm.arm.probe_position is not None}))
    axis.set_xlabel("visits to other tasks before the probe")
    axis.set_ylabel("return on the probe")
    axis.legend(loc="best")
    return figure


def _bar_panel(axis: Any, summary: Summary, task: str, names: Sequence[str], colours: dict[str, str]) -> None:
    for place, name in enumerate(names):
        stat = summary.arms[name].stat(task, "cumulative")
        if stat is None or stat.mean is None:
            continue
        axis.barh(place, stat.mean, height=0.66, color=colours[name])
        if stat.std is not None:
            axis.errorbar(stat.mean, place, xerr=stat.std, color=INK, elinewidth=1, capsize=2.2, capthick=1)
        edge = max(stat.mean, 0.0) + (stat.std or 0.0)
        axis.annotate(
            number(stat.mean), (edge, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axis.set_title(task)
    axis.set_yticks(range(len(names)), [label(name) for name in names])
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.margins(x=0.18)
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="both", length=0)
    axis.spines["bottom"].set_visible(False)
    axis.spines["left"].set_visible(False)
    axis.axvline(0, color=FAINT, linewidth=0.8)


def _heat_panel(axis: Any, arm: Arm, tasks: Sequence[str], shares: np.ndarray) -> Any:
    from matplotlib.patches import Rectangle

    end = max(run.end_frames for run in arm.runs)
    image = axis.imshow(
        shares, aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest",
        extent=(0, end, len(tasks) - 0.5, -0.5),
    )  # fmt: skip
    for row, task in enumerate(tasks):
        for start, stop in max(arm.runs, key=lambda run: run.end_frames).visits(task):
            box = (start, row - 0.44), stop - start, 0.88
            axis.add_patch(Rectangle(*box, fill=False, edgecolor="white", linewidth=1.2))
    axis.set_yticks(range(len(tasks)), tasks)
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return image


def _shares(arms: Sequence[Arm], tasks: Sequence[str]) -> np.ndarray:
    """[arms, tasks, time]: the mean return as a share of the best that any arm reached on the task."""
    points = 180
    table = np.full((len(arms), len(tasks), points), np.nan)
    for i, arm in enumerate(arms):
        grid = np.linspace(0, max(run.end_frames for run in arm.runs), points)
        for j, task in enumerate(tasks):
            if series := return_series(arm, task):
                table[i, j] = np.interp(grid, series.frames, series.mean)
    for j in range(len(tasks)):
        best = np.nanmax(table[:, j], initial=0.0)
        table[:, j] = np.clip(table[:, j] / best, 0, 1) if best > 0 else np.nan
    return table
