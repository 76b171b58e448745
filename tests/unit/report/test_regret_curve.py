"""Regret over training, in the world of now and in all worlds so far, against formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clearl.report import make_report, regret_curve, summarise_runs
from clearl.report.run import Span


def halves(task: str, share: float) -> float:
    """Task a is learnt to 8 of 10 in the first half and lost in the second; b the other way round."""
    if share == 0:
        return 0.0
    return 8.0 if (task == "a") == (share < 0.5) else 2.0


@pytest.fixture
def runs(make_run) -> list[Path]:
    alone = make_run.separate("separate", cycles=1, returns=lambda task, share: 10.0 if share else 0.0)
    return [alone, *(make_run("clear", seed, cycles=1, evals_per_visit=50, returns=halves) for seed in (0, 1))]


def test_now_and_so_far(runs: list[Path]) -> None:
    summary = summarise_runs(runs)
    arms = [arm.arm for arm in summary.arms.values()]
    assert {task: scale.top for task, scale in summary.scales.items()} == {"a": 10.0, "b": 10.0}
    (regret,) = regret_curve.read(arms, summary.scales).values()
    early, late = (np.searchsorted(regret.frames, at) for at in (500, 1500))
    assert regret.now[:, early] == pytest.approx([0.2, 0.2]) and regret.now[:, late] == pytest.approx([0.2, 0.2])
    assert regret.so_far[:, early] == pytest.approx([0.2, 0.2]), "b is not met yet"
    assert regret.so_far[:, late] == pytest.approx([0.5, 0.5]), "what is forgotten counts"
    assert regret.now[0, 0] == pytest.approx(1), "an untrained network"


def test_a_mixture_that_moves() -> None:
    spans = (Span(("a", "b"), 0, 100, weights=(1.0, 0.0), end_weights=(0.0, 1.0)), Span(("b",), 100, 200, index=1))
    frames = np.array([0.0, 25.0, 100.0, 200.0])
    assert regret_curve.task_shares(spans, "a", frames) == pytest.approx([1, 0.75, 0, 0])
    assert regret_curve.task_shares(spans, "b", frames) == pytest.approx([0, 0.25, 1, 1])


def test_the_figure_is_drawn_only_where_there_is_a_reference(runs: list[Path], tmp_path: Path) -> None:
    make_report(runs, tmp_path / "with")
    assert (tmp_path / "with" / "figures" / "regret.svg").is_file()
    page = (tmp_path / "with" / "index.html").read_text()
    assert "a network that was trained on that task alone, or at that value of a parameter alone" in page
    make_report(runs[1:], tmp_path / "without")
    assert not list((tmp_path / "without").rglob("regret.svg"))


def test_the_caption_says_what_stands_in_for_networks_that_were_trained_alone(make_run, tmp_path: Path) -> None:
    runs = [make_run(arm, 0, returns=lambda task, share: 10.0 * share) for arm in ("simultaneous", "clear")]
    make_report(runs, tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "trained on all tasks at once (Simultaneous), as there are no runs of Separate" in page
