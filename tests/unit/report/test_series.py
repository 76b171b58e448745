"""What figures draw: mean and deviation over seeds, cut where training of a task begins and ends."""

from __future__ import annotations

import json

import numpy as np
import pytest

from clearl.report.arms import group_arms
from clearl.report.load import load_runs
from clearl.report.series import cumulative_series, return_series


def _arm(make_run):
    (arm,) = group_arms(load_runs([make_run.root]))
    return arm


def test_mean_and_deviation_over_seeds(make_run):
    for seed, level in enumerate((2.0, 4.0)):
        make_run("clear", seed, returns=lambda task, share, level=level: level)
    series = return_series(_arm(make_run), "a")
    assert series is not None
    assert series.mean == pytest.approx(3.0) and series.std == pytest.approx(2**0.5)
    assert series.frames[-1] == 4000


def test_stretches_meet_at_the_switches(make_run):
    make_run("clear", 0)
    series = return_series(_arm(make_run), "b")
    assert series is not None
    stretches = [(series.frames[part][0], series.frames[part][-1], trained) for part, trained in series.stretches()]
    assert [(round(start), round(end), trained) for start, end, trained in stretches] == [
        (0, 1000, False),
        (1000, 2000, True),
        (2000, 3000, False),
        (3000, 4000, True),
    ]


def test_one_seed_has_no_band_and_an_early_end_leaves_the_others(make_run):
    make_run("clear", 0, returns=lambda task, share: 2.0)
    series = return_series(_arm(make_run), "a")
    assert series is not None and np.isnan(series.std).all()
    make_run("clear", 1, returns=lambda task, share: 6.0, until=0.5, status="interrupted")
    series = return_series(_arm(make_run), "a")
    assert series is not None and series.mean[1] == 4.0 and series.mean[-1] == 2.0


def test_cumulative_series_is_the_running_mean(make_run):
    make_run("clear", 0, returns=lambda task, share: share)
    series = cumulative_series(_arm(make_run), "a")
    assert series is not None
    assert series.mean == pytest.approx(series.frames / 8000)


def _drop_evaluations(path, low: int, high: int) -> None:
    """Leave out the evaluations between two frames, as an evaluator that lagged would have."""
    lines = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    rows = [(line, json.loads(line)) for line in lines]
    kept = [line for line, row in rows if row["kind"] != "eval" or not low < row["frames"] < high]
    (path / "metrics.jsonl").write_bytes(b"".join(kept))


def test_no_line_is_drawn_through_a_gap_and_dots_mark_what_was_measured(make_run):
    _drop_evaluations(make_run("clear", 0, returns=lambda task, share: share), 1000, 2000)
    series = return_series(_arm(make_run), "a")
    assert series is not None
    inside = (series.frames > 1000) & (series.frames < 2000)
    assert inside.any() and np.isnan(series.mean[inside]).all() and np.isfinite(series.mean[~inside]).all()
    assert not ((series.measured > 1000) & (series.measured < 2000)).any()
    assert series.at_measured() == pytest.approx(series.measured / 4000)


def test_a_gap_of_one_seed_is_bridged_by_the_others(make_run):
    _drop_evaluations(make_run("clear", 0, returns=lambda task, share: 1.0), 1000, 2000)
    make_run("clear", 1, returns=lambda task, share: 3.0)
    series = return_series(_arm(make_run), "a")
    assert series is not None and series.mean == pytest.approx(2.0) and series.seeds == 2


def test_a_task_that_was_never_evaluated_has_no_series(make_run):
    make_run("clear", 0)
    assert return_series(_arm(make_run), "absent") is None
