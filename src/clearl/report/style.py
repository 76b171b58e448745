"""The look of figures: colours that the colour-blind can tell apart and that differ in print, panels, and saving."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from clearl.report.arms import ArmName, base_name
from clearl.report.run import Arm
from clearl.report.task_names import cut

PALETTE = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933", "#332288", "#8a8f98",
)  # fmt: skip
"""Okabe and Ito's colours without the yellow, which vanishes on white, then some of Tol's."""

INK = "#1b2330"
FAINT = "#8b95a5"
GRID = "#e3e7ed"
"""Figures use these three for all that is not data; the page turns them into variables of its own theme."""

_ARM_COLOURS = {"sequential": "#d55e00", "clear": "#0072b2", "simultaneous": INK, "separate": "#8a8f98"}
_PANEL_WIDTHS = {1: 2.9, 2: 2.9, 3: 2.9, 4: 2.6, 5: 2.15}
"""Inches of a panel by how many stand side by side, so that every figure fits the page."""
_NOTE_LINE = 0.16
_LETTER = 0.068
"""Inches that a letter of a tick label takes; a bold title's takes a quarter more."""

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
    note: str = ""
    """Text below the panels: how many seeds, and what the band is."""

    def make(self, new_figure: Any) -> tuple[Any, Any]:
        """Return the figure, and its axes [rows, columns]."""
        width = self.left + self.columns * self.width + (self.columns - 1) * self.gap_x + self.right
        lines = wrap(self.note, int((width - 0.2) / (0.9 * _LETTER))) if self.note else []
        bottom = self.bottom + _NOTE_LINE * len(lines)
        height = self.top + self.rows * self.height + (self.rows - 1) * self.gap_y + bottom
        figure = new_figure(figsize=(width, height))
        if lines:
            text = "\n".join(lines)
            figure.text(0.1 / width, 0.06 / height, text, fontsize=7.5, color=FAINT, va="bottom", linespacing=1.35)
        place = {"left": self.left / width, "right": 1 - self.right / width}
        place |= {"bottom": bottom / height, "top": 1 - self.top / height}
        place |= {"wspace": self.gap_x / self.width, "hspace": self.gap_y / self.height}
        return figure, figure.subplots(self.rows, self.columns, squeeze=False, gridspec_kw=place)

    @property
    def below(self) -> float:
        """Inches below the lowest panels."""
        width = self.left + self.columns * self.width + (self.columns - 1) * self.gap_x + self.right
        return self.bottom + _NOTE_LINE * len(wrap(self.note, int((width - 0.2) / (0.9 * _LETTER))))


@contextmanager
def figure_style() -> Iterator[Any]:
    """Set up Matplotlib for our figures, without a display; gives `matplotlib.figure.Figure`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is drawn in its place
        yield Figure


def arm_colours(names: Sequence[str]) -> dict[str, str]:
    """Pick a colour for each method, lighter for the earlier positions of a probe.

    Four methods keep theirs everywhere. A method's own colour is that of the first arm that declares it.
    """
    bases = list(dict.fromkeys(base_name(name) for name in names))
    declared: dict[str, str] = {}
    for base in bases:
        colour = base.colour.lower() if isinstance(base, ArmName) else ""
        if colour and base not in _ARM_COLOURS and colour not in (*_ARM_COLOURS.values(), *declared.values()):
            declared[base] = colour
    fixed = _ARM_COLOURS | declared
    free = [colour for colour in PALETTE if colour not in fixed.values()]
    others = [base for base in bases if base not in fixed]
    methods = fixed | {base: free[index % len(free)] for index, base in enumerate(others)}
    colours = {}
    for base in bases:
        shades = [name for name in names if base_name(name) == base]
        for rank, name in enumerate(shades):
            colours[name] = lighter(methods[base], 0.55 * (1 - rank / max(1, len(shades) - 1)) if shades[1:] else 0.0)
    return colours


def lighter(colour: str, share: float) -> str:
    """Return the colour mixed with white."""
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def task_colours(tasks: Sequence[str]) -> dict[str, str]:
    """Return a colour for each task."""
    return {task: PALETTE[index % len(PALETTE)] for index, task in enumerate(tasks)}


def grid_columns(count: int) -> int:
    """Return the number of columns for a grid of panels: the one that leaves the fewest empty cells."""
    if count <= 5:
        return count
    return min((4, 3, 5), key=lambda columns: -count % columns)


def arm_columns(arms: Sequence[Arm]) -> int:
    """Return the number of columns for panels of arms; the positions of a probe fill one row."""
    positions = {arm.probe_position for arm in arms if arm.probe_position is not None}
    return len(positions) if 2 <= len(positions) <= 5 and len(arms) > len(positions) else grid_columns(len(arms))


def panel_width(columns: int) -> float:
    """Return the width in inches of one of `count` panels side by side."""
    return _PANEL_WIDTHS[min(columns, 5)]


def text_width(texts: Sequence[str]) -> float:
    """Estimate the inches that the longest of the texts takes at the size of tick labels."""
    return _LETTER * max((len(text) for text in texts), default=0)


def fit(text: str, inches: float) -> str:
    """Return a title that is cut in its middle where it would not fit."""
    return cut(text, max(8, int(inches / (1.3 * _LETTER))))


def save(figure: Any, stem: Path) -> tuple[Path, Path]:
    """Write `stem`.svg and `stem`.png; the same data gives the same bytes."""
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(svg, metadata={"Date": None, "Creator": "clearl"})
    figure.savefig(png, dpi=200, facecolor="white", metadata={"Software": "clearl"})
    return svg, png
