"""Show what the replay buffer is made of over training: the share of each task, for each arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clearl.errors import CorruptFileError
from clearl.records.names import clean_name
from clearl.records.reader import row_lines
from clearl.records.schema import METRICS_FILE, decode
from clearl.report.arms import label
from clearl.report.figures import frames_axis
from clearl.report.rows import finite
from clearl.report.run import Arm, Curve, Run
from clearl.report.style import Panels, fit, grid_columns, panel_width, task_colours
from clearl.report.task_names import short_names

NAME = "replay-by-task"
CAPTION = (
    "What the replay buffer is made of: the share of its unrolls that is of each task, one panel for each arm. Mean "
    "over seeds. A reservoir holds each task by the frames that it was played for, not by how recent it is."
)

Shares = dict[str, Curve]
"""The share of each task in the buffer of one run or arm over training, 0 to 1."""


def read(arms: Sequence[Arm]) -> dict[str, Shares]:
    """Read the composition of each arm whose rows tell of it, as means over its runs."""
    found = {arm.name: [shares for run in arm.runs if (shares := run_shares(run))] for arm in arms}
    return {name: _mean(runs) for name, runs in found.items() if runs}


def run_shares(run: Run) -> Shares:
    """Read the composition of one run's buffer; empty where its rows do not tell."""
    counted = list(_counts(run))
    frames = np.array([at for at, _ in counted])
    tasks = dict.fromkeys(task for _, unrolls in counted for task in unrolls)
    shares = [{task: count / sum(unrolls.values()) for task, count in unrolls.items()} for _, unrolls in counted]
    return {task: Curve(frames, np.array([each.get(task, 0.0) for each in shares])) for task in tasks}


def draw(new_figure: Any, composed: dict[str, Shares]) -> Any:
    """Draw a panel for each arm, with the shares of the tasks stacked."""
    tasks = list(dict.fromkeys(task for shares in composed.values() for task in shares))
    colours, names = task_colours(tasks), dict(zip(tasks, short_names(tasks, 24), strict=True))
    columns = grid_columns(len(composed))
    rows = -(-len(composed) // columns)
    width = panel_width(columns)
    figure, axes = Panels(rows, columns, width, 1.4, top=0.75, gap_y=0.5).make(new_figure)
    for index, (name, shares) in enumerate(composed.items()):
        row, column = divmod(index, columns)
        axis = axes[row][column]
        frames = next(iter(shares.values())).frames
        stacked = [shares[task].returns for task in shares]
        axis.stackplot(frames, *stacked, colors=[colours[task] for task in shares], linewidth=0)
        axis.set_title(fit(label(name), width))
        axis.set_ylim(0, 1)
        frames_axis(axis, named=row == rows - 1)
    for index in range(len(composed), rows * columns):
        axes[index // columns][index % columns].set_visible(False)
    axes[0][0].set_ylabel("share of the buffer")
    from matplotlib.patches import Patch

    handles = [Patch(color=colours[task], label=names[task]) for task in tasks[:8]]
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 1), ncols=4, handlelength=1.2)
    return figure


def _counts(run: Run) -> Iterator[tuple[float, dict[str, float]]]:
    """Return frames and unrolls by task of the rows that count them: one in ten, so the others need not be read."""
    for line in row_lines(run.path / METRICS_FILE):
        if b'"by_task":{' not in line:
            continue
        try:
            row = decode(line)
            counted = row["replay"]["by_task"]
            unrolls = {clean_name(task): max(0.0, finite(each["unrolls"])) for task, each in counted.items()}
            if sum(unrolls.values()) > 0:
                yield finite(row["frames"]) * run.frames_scale, unrolls
        except (AttributeError, CorruptFileError, KeyError, TypeError, ValueError):
            continue


def _mean(runs: Sequence[Shares]) -> Shares:
    """Average over runs, at the frames of the longest; a task that a run never held has no share of it."""
    frames = max((next(iter(shares.values())).frames for shares in runs), key=len)
    tasks = dict.fromkeys(task for shares in runs for task in shares)
    held = {task: [s[task].at(frames) if task in s else np.zeros(len(frames)) for s in runs] for task in tasks}
    return {task: Curve(frames, np.mean(each, axis=0)) for task, each in held.items()}
