"""What replay is made of: figure and table from the rows that count unrolls by task, and from no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_runs import add_train_row

from clearl.report import composition, make_report, summarise_runs
from clearl.report.arms import group_arms
from clearl.report.load import load_runs
from clearl.report.tables import replay_table


@pytest.fixture
def two_seeds(make_run, learner) -> Path:
    for seed in (0, 1):
        path = make_run("clear", seed, returns=learner(("a", "b"), 2, keeps=0.9, noise=0.1, seed=seed))
        add_train_row(path, 100, replay={"by_task": {"a": {"unrolls": 8, "median_age_frames": 50}}})
        add_train_row(path, 200, replay={"by_task": "nonsense"})
        add_train_row(path, 300, replay={"by_task": {"a": {"unrolls": "many"}}})
        add_train_row(path, 400, replay={"by_task": {"a": {"unrolls": 6 + seed}, "b": {"unrolls": 2 - seed}}})
    return path.parent


def test_shares_are_means_over_seeds(two_seeds: Path) -> None:
    shares = composition.read(group_arms(load_runs([two_seeds])))["clear"]
    np.testing.assert_allclose(shares["a"].frames, [100, 400])
    np.testing.assert_allclose(shares["a"].returns, [1.0, (6 / 8 + 7 / 8) / 2])
    np.testing.assert_allclose(shares["b"].returns, [0.0, (2 / 8 + 1 / 8) / 2])


def test_the_report_has_figure_and_table(two_seeds: Path, tmp_path: Path) -> None:
    make_report([two_seeds], tmp_path / "report", title="t")
    assert list((tmp_path / "report").rglob("replay-by-task.svg"))
    page = next((tmp_path / "report").glob("*.html")).read_text()
    assert composition.CAPTION[:40] in page and "Replay at the end" in page
    table = replay_table(summarise_runs([two_seeds]))
    assert table is not None and table.tasks == ["a", "b"]
    assert [stat.mean for stat in table.numbers[0] if stat is not None] == pytest.approx([81.25, 18.75])


def test_runs_whose_rows_do_not_tell_have_none(make_run, learner) -> None:
    path = make_run("clear", 0, returns=learner(("a", "b"), 2, keeps=0.9, noise=0.1, seed=0))
    assert composition.read(group_arms(load_runs([path.parent]))) == {}
    assert replay_table(summarise_runs([path.parent])) is None
