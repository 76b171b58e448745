"""The figure of the updates' diagnostics over training: of new and of replayed unrolls, for each arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clearl.errors import CorruptFileError
from clearl.records.reader import row_lines
from clearl.records.schema import METRICS_FILE, Row, decode
from clearl.report.arms import label
from clearl.report.figures import frames_axis
from clearl.report.rows import finite
from clearl.report.run import Arm, Curve, Run
from clearl.report.style import FAINT, Panels, arm_colours

NAME = "diagnostics"
CAPTION = (
    "What the updates were made of: entropy of the policy, ratio pi/mu cut at rho-bar, share of the ratios that were "
    "cut, KL from the acting to the present policy, |V - v|, and the gradient norm before clipping, of new unrolls "
    "(solid) and replayed ones (dashed). Mean over seeds."
)
_PANELS = {
    "entropy": "entropy",
    "mean_rho": "mean rho",
    "clipped_share": "clipped ratios",
    "kl": "KL[mu||pi]",
    "value_error": "value error",
    "grad_norm": "gradient norm",
}
_STYLES = {"new": "-", "replay": (0, (3, 1.5))}
_COLUMNS = 3

CurvesByName = dict[tuple[str, str], Curve]
"""The curves of one arm, by half (new, replay) and figure."""


def read(arms: Sequence[Arm]) -> dict[str, CurvesByName]:
    """Return the diagnostics of each arm that has some, as means over its runs."""
    found = {arm.name: [_curves(run) for run in arm.runs] for arm in arms}
    return {name: _mean(runs) for name, runs in found.items() if any(runs)}


def draw(new_figure: Any, diagnosed: dict[str, CurvesByName]) -> Any:
    """Draw a panel for each figure, with a line for each arm and half."""
    from matplotlib.lines import Line2D

    rows = -(-len(_PANELS) // _COLUMNS)
    figure, axes = Panels(rows, _COLUMNS, 2.6, 1.5, top=0.75, bottom=0.55, gap_y=0.5).make(new_figure)
    colours = arm_colours(list(diagnosed))
    for index, (key, words) in enumerate(_PANELS.items()):
        row, column = divmod(index, _COLUMNS)
        axis = axes[row][column]
        axis.set_title(words)
        for name, curves in diagnosed.items():
            for half, style in _STYLES.items():
                if curve := curves.get((half, key)):
                    axis.plot(curve.frames, curve.returns, color=colours[name], linestyle=style, linewidth=1.4)
        if key == "grad_norm":
            axis.set_yscale("log")
        frames_axis(axis, named=row == rows - 1)
    handles = [Line2D([], [], color=colours[name], linewidth=1.4, label=label(name)) for name in diagnosed]
    handles += [Line2D([], [], color=FAINT, linestyle=style, label=half) for half, style in _STYLES.items()]
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 1), ncols=4, handlelength=1.8)
    return figure


def _curves(run: Run) -> CurvesByName:
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in _rows(run):
        for half in _STYLES:
            values = row["diagnostics"].get(half)
            for key in _PANELS if isinstance(values, dict) else ():
                if isinstance(value := values.get(key), float):
                    points.setdefault((half, key), []).append((row["frames"] * run.frames_scale, float(value)))
    return {key: Curve(*np.array(listed, float).T) for key, listed in points.items()}


def _rows(run: Run) -> Iterator[Row]:
    """Yield the rows with diagnostics: few, so that the others need not be read."""
    for line in row_lines(run.path / METRICS_FILE):
        if b'"diagnostics":{' in line:
            try:
                row = decode(line)
                finite(row["frames"])
            except (CorruptFileError, TypeError, ValueError):
                continue
            if row["kind"] == "train" and isinstance(row.get("diagnostics"), dict):
                yield row


def _mean(runs: Sequence[CurvesByName]) -> CurvesByName:
    """Average over the runs that have a curve, at the frames of the longest."""
    means = {}
    for key in dict.fromkeys(key for curves in runs for key in curves):
        curves = [found[key] for found in runs if key in found]
        frames = max((curve.frames for curve in curves), key=len)
        means[key] = Curve(frames, np.mean([curve.at(frames) for curve in curves], axis=0))
    return means
