"""The figures beside the curves: bars of the cumulative table, and the probe's return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clearl.report.arms import base_name, label
from clearl.report.figures import MANY_TASKS
from clearl.report.formatting import number
from clearl.report.stats import Stat
from clearl.report.style import FAINT, INK, Panels, arm_colours, fit, grid_columns, panel_width, text_width
from clearl.report.summary import Summary

_MEAN_OF_ALL = "all tasks, normalised"


def bars(new_figure: Any, summary: Summary, *, note: str) -> Any:
    """Draw the table of cumulative scores as bars, a panel for each task; for many tasks only their normalised mean."""
    names = [name for name, arm in summary.arms.items() if arm.mean("cumulative") is not None]
    tasks = summary.tasks if len(summary.tasks) <= MANY_TASKS else [_MEAN_OF_ALL]
    columns = grid_columns(len(tasks)) if len(tasks) != 5 else 3
    left, width = 0.25 + text_width([label(name) for name in names]), min(2.5, panel_width(columns))
    panels = Panels(
        -(-len(tasks) // columns), columns, width, 0.24 * len(names) + 0.1, left=left, right=0.2, bottom=0.35,
        gap_x=0.3, gap_y=0.6, note=note,
    )  # fmt: skip
    figure, axes = panels.make(new_figure)
    colours = arm_colours(names)
    for index, axis in enumerate(axes.ravel()):
        if index >= len(tasks):
            axis.axis("off")
            continue
        _bar_panel(axis, _bar_values(summary, tasks[index], names), colours, width)
        axis.set_title(fit(tasks[index], width))
        if index % columns:
            axis.tick_params(axis="y", labelleft=False)
    return figure


def probe(new_figure: Any, summary: Summary, *, note: str) -> Any:
    """Draw the probe's return against its position, a line for each method."""
    figure, axes = Panels(1, 1, 4.6, 2.3, top=0.12, note=note).make(new_figure)
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


def _bar_values(summary: Summary, task: str, names: Sequence[str]) -> dict[str, Stat]:
    """Map each arm to the score that its bar shows."""
    if task == _MEAN_OF_ALL:
        return {name: Stat(tuple(summary.arms[name].scores.tolist())) for name in names}
    return {name: summary.arms[name].stat(task, "cumulative") or Stat(()) for name in names}


def has_bars(summary: Summary) -> bool:
    """Return whether there is a score to draw: the normalised mean of many tasks may not exist."""
    many = len(summary.tasks) > MANY_TASKS
    return any(arm.scores.size if many else arm.mean("cumulative") is not None for arm in summary.arms.values())


def _bar_panel(axis: Any, values: dict[str, Stat], colours: dict[str, str], width: float) -> None:
    for place, (name, stat) in enumerate(values.items()):
        if stat.mean is None:
            continue
        axis.barh(place, stat.mean, height=0.66, color=colours[name])
        spread = stat.std or 0.0
        if stat.std is not None:
            axis.errorbar(stat.mean, place, xerr=spread, color=INK, elinewidth=1, capsize=2.2, capthick=1)
        is_negative = stat.mean < 0
        edge = stat.mean - spread if is_negative else stat.mean + spread
        axis.annotate(
            number(stat.mean), (edge, place), xytext=(-4 if is_negative else 4, 0), textcoords="offset points",
            va="center", ha="right" if is_negative else "left", fontsize=8,
        )  # fmt: skip
    axis.set_yticks(range(len(values)), [label(name) for name in values])
    axis.set_ylim(len(values) - 0.4, -0.6)
    axis.set_xlim(*_limits(list(values.values()), width))
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="both", length=0)
    axis.spines["bottom"].set_visible(False)
    axis.spines["left"].set_visible(False)
    axis.axvline(0, color=FAINT, linewidth=0.8)


def _limits(stats: Sequence[Stat], width: float) -> tuple[float, float]:
    """Return the ends of the axis: bars begin at zero, and their numbers fit into the panel of `width` inches."""
    known = [(stat.mean, stat.std or 0.0) for stat in stats if stat.mean is not None]
    low, left = _reach([bar for bar in known if bar[0] < 0])
    high, right = _reach([bar for bar in known if bar[0] >= 0])
    an_inch = ((low + high) or 1.0) / max(0.2 * width, width - left - right)
    return -low - an_inch * left, high + an_inch * right


def _reach(bars: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the largest distance from zero of (mean, deviation) on one side, and the inches of its longest number."""
    if not bars:
        return 0.0, 0.0
    reach = max(abs(mean) + deviation for mean, deviation in bars)
    return reach, 0.12 + text_width([number(mean) for mean, _ in bars])
