"""The figures over training, in the paper's form: a line for each task, thick while trained, thin while evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from clearl.report.arms import label
from clearl.report.formatting import frames
from clearl.report.run import Arm
from clearl.report.series import Series
from clearl.report.style import (
    FAINT,
    PALETTE,
    Panels,
    arm_colours,
    arm_columns,
    fit,
    grid_columns,
    panel_width,
    task_colours,
    text_width,
)  # fmt: skip

Table = dict[tuple[str, str], Series | None]

_SCALE_SPREAD = 4.0
"""Tasks whose best scores differ by more than this get rows of their own: on one axis the smaller would be flat."""
_MANY_ARMS = 5
"""More lines than this in one panel are drawn finer, and without bands."""
_MANY_PANELS = 15
MANY_TASKS = 16
"""With more tasks, curves are not drawn: the heat map and the tables say it."""
_MOST_DOTS = 60
_MOST_LEGEND = 10
"""Entries of a legend that fit one panel."""
_MOST_VISITS = 400
"""A schedule with more visits is no longer drawn below the panels."""
_BAND = "band: ± 1 standard deviation over seeds"
_WIDTHS, _FINE_WIDTHS = (2.4, 0.9), (1.7, 0.7)
"""Widths of a line while its task is trained, and while it is only evaluated."""
_WEIGHTS = tuple(zip(("trained", "only evaluated"), _WIDTHS, strict=True))


@dataclass(frozen=True)
class Curves:
    """Some series of all arms and tasks, drawn by arm or by task."""

    arms: Sequence[Arm]
    tasks: Sequence[str]
    series_of: Callable[[Arm, str], Series | None]
    what: str
    """Name of the y-axis."""
    names: str = ""
    """Explanation of task names that are not self-explanatory."""

    @property
    def note(self) -> str:
        """The text below the figure: the number of seeds, and what line, band and dots are."""
        counts = [len(arm.runs) for arm in self.arms]
        seeds = f"n = {min(counts)}" + (f" to {max(counts)}" if max(counts) > min(counts) else "")
        lines = f"{seeds} seeds each. Line: mean; {_BAND}" if max(counts) > 1 else "One seed"
        return f"{lines}. Dots: evaluations; the line stops where there were none.{self.names}"

    @cached_property
    def table(self) -> Table:
        return {(arm.name, task): self.series_of(arm, task) for arm in self.arms for task in self.tasks}

    @cached_property
    def groups(self) -> list[list[str]]:
        """The tasks that share an axis."""
        return [[task] for task in self.tasks] if _scales_differ(self.table, self.tasks) else [list(self.tasks)]

    @property
    def fit_by_arm(self) -> bool:
        """False where many tasks would need rows of their own: panels by task then show it, as in the paper."""
        if len(self.tasks) > MANY_TASKS:
            return False
        return len(self.groups) == 1 or len(self.groups) * len(self.arms) <= _MANY_PANELS

    @property
    def fit_by_task(self) -> bool:
        """True as long as every arm has a colour of its own."""
        return 1 < len(self.arms) <= len(PALETTE) and len(self.tasks) <= MANY_TASKS

    def by_arm(self, new_figure: Any) -> Any:
        """Draw a panel for each arm; where the tasks' scales differ much, also a row for each task."""
        columns, rows = arm_columns(self.arms), len(self.groups)
        blocks = -(-len(self.arms) // columns)
        entries = list(task_colours(self.tasks).items())
        left, width = 0.6 + (0.17 if rows > 1 else 0.0), panel_width(columns)
        free = _free_cells(axes_count=blocks * columns, used=len(self.arms), entries=entries)
        panels = Panels(
            blocks * rows, columns, width, 1.6, left=left, top=_top([] if free else entries, columns, width),
            bottom=0.55, note=self.note,
        )  # fmt: skip
        figure, axes = panels.make(new_figure)
        for index in range(blocks * columns):
            block, column = divmod(index, columns)
            for row, group in enumerate(self.groups):
                axis = axes[block * rows + row][column]
                if index >= len(self.arms):
                    _cell_legend(axis, entries if row == 0 and index == len(self.arms) else [])
                    continue
                self._arm_panel(axis, self.arms[index], group)
                if row == 0:
                    axis.set_title(fit(label(self.arms[index].name), width))
                if column == 0:
                    axis.set_ylabel(f"{fit(group[0], 1.6)}\n{self.what}" if rows > 1 else self.what)
                frames_axis(axis, named=index + columns >= len(self.arms) and row == rows - 1)
        if not free:
            _legend(figure, entries, columns, width)
        return figure

    def by_task(self, new_figure: Any) -> Any:
        """Draw a panel for each task with a line for each arm."""
        columns = grid_columns(len(self.tasks))
        width = panel_width(columns)
        colours = arm_colours([arm.name for arm in self.arms])
        entries = [(label(arm.name), colours[arm.name]) for arm in self.arms]
        rows = -(-len(self.tasks) // columns)
        free = _free_cells(axes_count=rows * columns, used=len(self.tasks), entries=entries)
        top = _top([] if free else entries, columns, width)
        few = len(self.arms) <= _MANY_ARMS
        note = self.note if few else self.note.replace(_BAND, "no bands, since the lines are many")
        figure, axes = Panels(rows, columns, width, 1.9, top=top, note=note).make(new_figure)
        for index, axis in enumerate(axes.ravel()):
            if index >= len(self.tasks):
                _cell_legend(axis, entries if index == len(self.tasks) else [])
                continue
            task = self.tasks[index]
            for arm in self.arms:
                widths = _WIDTHS if few else _FINE_WIDTHS
                draw_line(axis, self.table[arm.name, task], colours[arm.name], widths=widths, band=few)
            axis.set_title(fit(task, width))
            value_axis(axis, [self.table[arm.name, task] for arm in self.arms])
            if index % columns == 0:
                axis.set_ylabel(self.what)
            frames_axis(axis, named=index + columns >= len(self.tasks))
        if not free:
            _legend(figure, entries, columns, width)
        return figure

    def _arm_panel(self, axis: Any, arm: Arm, group: Sequence[str]) -> None:
        colours = task_colours(self.tasks)
        for task in group:
            draw_line(axis, self.table[arm.name, task], colours[task])
        value_axis(axis, [self.table[other.name, task] for other in self.arms for task in group])
        _schedule_strip(axis, arm, colours)


def draw_line(
    axis: Any, series: Series | None, colour: str, *, widths: tuple[float, float] = _WIDTHS, band: bool = True
) -> None:
    """Draw the mean over seeds with the deviation as a band; `widths` while trained and while only evaluated."""
    if series is None:
        return
    if band and np.isfinite(series.std).any():
        low, high = series.mean - series.std, series.mean + series.std
        axis.fill_between(series.frames, low, high, color=colour, alpha=0.16, linewidth=0)
    for part, trained in series.stretches():
        width = widths[0] if trained else widths[1]
        axis.plot(series.frames[part], series.mean[part], color=colour, linewidth=width, solid_capstyle="butt")
    if len(series.measured) <= _MOST_DOTS:
        size = 1.4 * widths[0]
        axis.plot(series.measured, series.at_measured(), "o", color=colour, markersize=size, markeredgewidth=0)


def value_axis(axis: Any, series: Sequence[Series | None]) -> None:
    """Fit the y-axis to all means with their bands, from zero where nothing is below."""
    from matplotlib.ticker import FuncFormatter

    known = [one for one in series if one is not None and np.isfinite(one.mean).any()]
    high = max((float(np.nanmax(one.mean + np.nan_to_num(one.std))) for one in known), default=1.0)
    low = min((float(np.nanmin(one.mean)) for one in known), default=0.0)
    high, low = max(high, 0.0), min(low, 0.0)
    room = 0.05 * ((high - low) or 1.0)
    axis.set_ylim(low - (room if low < 0 else 0.0), high + room)
    if high - low >= 5000 or low <= -1000:  # the room for labels has four letters, a minus is one of them
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: frames(value)))


def frames_axis(axis: Any, *, named: bool) -> None:
    """Set up the x-axis of all figures over training; only the lowest panels name it."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: frames(value)))
    axis.margins(x=0)
    axis.set_xlim(0, float(f"{axis.get_xlim()[1]:.9g}"))  # rounding in the transform would move the ticks
    if named:
        axis.set_xlabel("frames, all tasks together")
    else:
        axis.tick_params(axis="x", labelbottom=False)


def _schedule_strip(axis: Any, arm: Arm, colours: dict[str, str]) -> None:
    """Draw below the panel which tasks were trained when; tasks trained at once share the strip."""
    run = max(arm.runs, key=lambda run: run.drawn_frames)
    visits = {task: run.visits(task, until=run.drawn_frames) for task in colours}
    tasks = [task for task in colours if visits[task]]
    if sum(map(len, visits.values())) > _MOST_VISITS:
        return
    at_once = len(tasks) > 1 and all(visits[task] == visits[tasks[0]] for task in tasks)
    height = 0.04 / (len(tasks) if at_once else 1)
    for row, task in enumerate(tasks):
        bottom = -0.05 + (height * (len(tasks) - 1 - row) if at_once else 0.0)
        for start, end in visits[task]:
            axis.axvspan(start, end, ymin=bottom, ymax=bottom + height, color=colours[task], lw=0, clip_on=False)
    axis.spines["bottom"].set_visible(False)
    axis.tick_params(axis="x", pad=9, length=0)


def _scales_differ(table: Table, tasks: Sequence[str]) -> bool:
    tops = [
        max((float(np.nanmax(np.abs(s.mean))) for (_, name), s in table.items() if name == task and s), default=0.0)
        for task in tasks
    ]
    known = [top for top in tops if top > 0]
    return len(known) > 1 and max(known) > _SCALE_SPREAD * min(known)


def _legend_columns(entries: Sequence[tuple[str, str]], columns: int, width: float) -> int:
    widest = text_width([*(name for name, _ in entries), _WEIGHTS[1][0]]) + 0.55
    return max(1, min(len(entries) + len(_WEIGHTS), int(((width + 0.4) * columns) / widest)))


def _top(entries: Sequence[tuple[str, str]], columns: int, width: float) -> float:
    """Inches above the panels, for the legend and the titles."""
    if not entries:
        return 0.32
    return 0.36 + 0.2 * -(-(len(entries) + len(_WEIGHTS)) // _legend_columns(entries, columns, width))


def _handles(entries: Sequence[tuple[str, str]]) -> list[Any]:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, linewidth=2.4, label=name) for name, colour in entries]
    return handles + [Line2D([], [], color=FAINT, linewidth=width, label=name) for name, width in _WEIGHTS]


def _legend(figure: Any, entries: Sequence[tuple[str, str]], columns: int, width: float) -> None:
    """Draw the legend above the panels, read from left to right and then down."""
    count = _legend_columns(entries, columns, width)
    handles = _handles(entries)
    by_rows = [handles[place] for start in range(count) for place in range(start, len(handles), count)]
    figure.legend(
        handles=by_rows, loc="upper left", bbox_to_anchor=(0, 1), ncols=count, handlelength=1.8, borderaxespad=0.4,
        columnspacing=1.6,
    )  # fmt: skip


def _free_cells(*, axes_count: int, used: int, entries: Sequence[tuple[str, str]]) -> bool:
    """Return whether the legend goes into a cell that would be empty."""
    return axes_count > used and len(entries) + len(_WEIGHTS) <= _MOST_LEGEND


def _cell_legend(axis: Any, entries: Sequence[tuple[str, str]]) -> None:
    """Use an empty cell for the legend."""
    axis.axis("off")
    if entries and len(entries) + len(_WEIGHTS) <= _MOST_LEGEND:
        axis.legend(handles=_handles(entries), loc="upper left", handlelength=1.8, borderaxespad=0.0)
