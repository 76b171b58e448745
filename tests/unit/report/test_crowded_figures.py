"""Figures of many tasks with long names and of negative returns: no text is cut off, no titles overlap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from clearl.report import gallery, make_report

Factory = Callable[[Path], Callable[..., Path]]
SLACK = 3  # pixels
TASKS = [f"MiniGrid-KeyCorridor-{number:02d}-of-the-northern-wing-v0" for number in range(48)]


def texts_of(figure: Any) -> list[tuple[Text, Any]]:
    """All visible texts with their boxes in pixels."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    beyond = [text for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in ticks_beyond(axis)]
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [(text, text.get_window_extent(renderer)) for text in found if text not in beyond]


def ticks_beyond(axis: Any) -> list[Text]:
    """Labels of ticks outside of the axis, which Matplotlib has and does not draw."""
    low, high = sorted(axis.get_view_interval())
    return [tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]


def problems_of(figure: Any) -> list[str]:
    """Texts that leave the figure, and titles that lie on each other."""
    width, height = figure.get_size_inches() * figure.dpi
    texts = texts_of(figure)
    page = Bbox.from_bounds(-SLACK, -SLACK, width + 2 * SLACK, height + 2 * SLACK)
    cut = [text.get_text() for text, box in texts if not (page.contains(*box.p0) and page.contains(*box.p1))]
    titles = [axis.title for axis in figure.axes] + [axis._left_title for axis in figure.axes]
    boxes = [(text.get_text(), box) for text, box in texts if text in titles]
    over = [f"{a} on {b}" for i, (a, one) in enumerate(boxes) for b, other in boxes[:i] if one.overlaps(other)]
    return [f"cut off: {text}" for text in cut] + over


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Collect the faults of each figure in the reports that a test makes."""
    found: dict[str, list[str]] = {}
    real = gallery.save

    def save(figure: Any, stem: Path) -> tuple[Path, Path]:
        found[stem.name] = problems_of(figure)
        return real(figure, stem)

    monkeypatch.setattr(gallery, "save", save)
    return found


def arms_of(make: Callable[..., Path], tasks: list[str], returns: Callable[[float], float]) -> None:
    for arm in ("sequential", "clear", "a method of my own with a name that is rather long"):
        for seed in (0, 1):
            make(
                arm, seed, tasks=tasks, cycles=1, evals_per_visit=2,
                returns=lambda task, share, seed=seed: returns(share) + 400 * seed,
            )  # fmt: skip


@pytest.mark.parametrize("lowest", [0, -4000])
@pytest.mark.parametrize("count", [4, 48])
def test_no_text_is_cut_off(
    count: int, lowest: int, run_factory: Factory, tmp_path: Path, figures: dict[str, list[str]]
) -> None:
    arms_of(run_factory(tmp_path), TASKS[:count], lambda share: lowest + 2500 * share)
    make_report([tmp_path], tmp_path / "report")
    assert "cumulative-bars" in figures and "retention" in figures
    assert not {name: wrong for name, wrong in figures.items() if wrong}


def test_scores_that_only_fall_have_no_mean_to_draw(
    run_factory: Factory, tmp_path: Path, figures: dict[str, list[str]]
) -> None:
    arms_of(run_factory(tmp_path), TASKS, lambda share: -1000 - 2000 * share)
    make_report([tmp_path], tmp_path / "report")
    assert "cumulative-bars" not in figures


def test_a_legend_of_several_rows_is_read_from_left_to_right() -> None:
    from matplotlib.figure import Figure

    from clearl.report.figures import _legend

    names = [f"arm number {number} with a long name" for number in range(7)]
    figure = Figure(figsize=(9, 5))
    _legend(figure, [(name, "#000000") for name in names], columns=3, width=3.0)
    places = {text.get_text(): box for text, box in texts_of(figure)}
    heights = sorted({round(places[name].y0) for name in names}, reverse=True)
    assert 1 < len(heights) < len(names)
    assert sorted(names, key=lambda name: (heights.index(round(places[name].y0)), places[name].x0)) == names
