"""The figure of diagnostics: drawn where runs have some, from the rows of each half, as means over seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_runs import add_train_row

from clearl.report import diagnostics, make_report
from clearl.report.arms import group_arms
from clearl.report.load import load_runs


@pytest.fixture
def two_seeds(make_run, learner) -> Path:
    for seed in (0, 1):
        path = make_run("clear", seed, returns=learner(("a", "b"), 2, keeps=0.9, noise=0.1, seed=seed))
        for frames in (100, 200):
            new = {"entropy": frames + 10.0 * seed, "grad_norm": 400.0, "kl": None}
            add_train_row(
                path, frames, extra={"diagnostics": {"new": new, "replay": {"entropy": 0.5}, "terms": {"value": 3.0}}}
            )
        add_train_row(path, 300, extra={"diagnostics": "nonsense"})
        add_train_row(path, 400, extra={"diagnostics": {"new": {"entropy": "text"}}})
    return path.parent


def test_curves_are_means_over_seeds_of_what_is_a_number(two_seeds: Path) -> None:
    read = diagnostics.read(group_arms(load_runs([two_seeds])))
    assert set(read["clear"]) == {("new", "entropy"), ("new", "grad_norm"), ("replay", "entropy")}
    np.testing.assert_allclose(read["clear"]["new", "entropy"].frames, [100, 200])
    np.testing.assert_allclose(read["clear"]["new", "entropy"].returns, [105, 205])


def test_the_report_has_the_figure(two_seeds: Path, tmp_path: Path) -> None:
    make_report([two_seeds], tmp_path / "report", title="t")
    assert list((tmp_path / "report").rglob("diagnostics.svg"))
    assert diagnostics.CAPTION[:40] in next((tmp_path / "report").glob("*.html")).read_text()


def test_runs_without_diagnostics_have_none(make_run, learner) -> None:
    path = make_run("clear", 0, returns=learner(("a", "b"), 2, keeps=0.9, noise=0.1, seed=0))
    assert diagnostics.read(group_arms(load_runs([path.parent]))) == {}
