"""The figure of `clearl memory`: when the unrolls of a buffer were played, and what they returned, by task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from clearl.errors import ConfigError
from clearl.report.figures import frames_axis
from clearl.report.style import Panels, figure_style, task_colours, text_width
from clearl.report.task_names import short_names

_KINDS = (".png", ".svg", ".pdf")
_BINS = 40


def draw_memory(path: Path, played: Mapping[str, np.ndarray], returns: Mapping[str, np.ndarray]) -> None:
    """Draw `played` (frames) and `returns` of each task's unrolls to `path`."""
    if path.suffix not in _KINDS:
        raise ConfigError(f"--figure must end in {', '.join(_KINDS)}, got {path.name!r}")
    tasks = [task for task in played if len(played[task])]
    if not tasks:
        raise ConfigError("there is nothing to draw: no unroll with a label could be read")
    colours, names = task_colours(tasks), short_names(tasks, 24)
    with figure_style() as new_figure:
        figure, ((ages, scores),) = Panels(1, 2, 3.4, 2.2, top=0.75, gap_x=0.4 + text_width(names)).make(new_figure)
        edges = np.histogram_bin_edges(np.concatenate([played[task] for task in tasks]), _BINS)
        ages.hist([played[task] for task in tasks], edges, stacked=True, color=[*colours.values()], label=names)
        ages.set_title("when they were played")
        ages.set_ylabel("unrolls")
        frames_axis(ages, named=True)
        scores.boxplot(
            [returns[task] for task in tasks], orientation="horizontal", showfliers=False, widths=0.6,
            medianprops={"color": "#1b2330"}, boxprops={"color": "#8b95a5"},
        )  # fmt: skip
        scores.set_yticks(range(1, len(tasks) + 1), names)
        scores.set_title("what they returned")
        scores.set_xlabel("sum of rewards of an unroll")
        figure.legend(*ages.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0, 1), ncols=4)
        figure.savefig(path, dpi=200)
