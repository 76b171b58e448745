"""How figures look: colours that the colour-blind can tell apart and that differ in print, panels, and saving."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearl.report.run import Arm

PALETTE = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933", "#332288", "#8a8f98",
)  # fmt: skip
"""Okabe and Ito's colours without the yellow, which vanishes on white, then some of Tol's."""

INK = "#1b2330"
FAINT = "#8b95a5"
GRID = "#e3e7ed"
"""Figures use these three for all that is not data; the page turns them into variables of its own theme."""

_ARM_COLOURS = {"sequential": "#d55e00", "clear": "#0072b2", "simultaneous": INK, "separate": "#8a8f98"}

_RC: Any = {
    "font.family": "DejaVu Sans",  # comes with Matplotlib, so that figures are the same everywhere
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.hashsalt": "clearl",
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


@dataclass(frozen=True)
class Panels:
    """A grid of panels of one size, in inches; margins are fixed because Matplotlib's own layout takes seconds."""

    rows: int
    columns: int
    width: float
    height: float
    left: float = 0.6
    right: float = 0.2
    top: float = 0.3
    bottom: float = 0.5
    gap_x: float = 0.45
    gap_y: float = 0.4

    def make(self, new_figure: Any) -> tuple[Any, Any]:
        """The figure, and its axes [rows, columns]."""
        width = self.left + self.columns * self.width + (self.columns - 1) * self.gap_x + self.right
        height = self.top + self.rows * self.height + (self.rows - 1) * self.gap_y + self.bottom
        figure = new_figure(figsize=(width, height))
        place = {"left": self.left / width, "right": 1 - self.right / width}
        place |= {"bottom": self.bottom / height, "top": 1 - self.top / height}
        place |= {"wspace": self.gap_x / self.width, "hspace": self.gap_y / self.height}
        return figure, figure.subplots(self.rows, self.columns, squeeze=False, gridspec_kw=place)


@contextmanager
def figure_style() -> Iterator[Any]:
    """Matplotlib set up for our figures, without a display; gives `matplotlib.figure.Figure`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is drawn in its place
        yield Figure


def arm_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each arm; the four that most reports share keep theirs."""
    free = [colour for colour in PALETTE if colour not in _ARM_COLOURS.values()]
    others = [name for name in names if name not in _ARM_COLOURS]
    return _ARM_COLOURS | {name: free[index % len(free)] for index, name in enumerate(others)}


def task_colours(tasks: Sequence[str]) -> dict[str, str]:
    """A colour for each task."""
    return {task: PALETTE[index % len(PALETTE)] for index, task in enumerate(tasks)}


def grid_columns(arms: Sequence[Arm]) -> int:
    """How many panels stand side by side, one for each arm: the positions of a probe, else what fits a page."""
    positions = {arm.probe_position for arm in arms if arm.probe_position is not None}
    if len(arms) <= 3 or (len(positions) < 2 and len(arms) == 4):
        return len(arms)
    return len(positions) if 2 <= len(positions) <= 4 else 3


def text_width(texts: Sequence[str]) -> float:
    """About how many inches the longest of the texts takes at the size of tick labels."""
    return 0.068 * max((len(text) for text in texts), default=0)


def save(figure: Any, stem: Path) -> tuple[Path, Path]:
    """Write `stem`.svg and `stem`.png; the same data gives the same bytes."""
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(svg, metadata={"Date": None, "Creator": "clearl"})
    figure.savefig(png, dpi=200, facecolor="white", metadata={"Software": "clearl"})
    return svg, png
