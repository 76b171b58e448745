"""Each measure against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from made_runs import POINTS, VISITS, run_of

from clearl.report import metrics
from clearl.report.load import load_run, load_runs


def test_cumulative_is_the_area_under_straight_lines_over_all_of_training(tmp_path):
    run = run_of(tmp_path, {"a": [(100, 2.0), (300, 6.0), (400, 0.0)]}, [("a", 0, 500)])
    # 2 until 100, then (2+6)/2 over 200 frames, (6+0)/2 over 100, then 0 over 100.
    assert metrics.cumulative(run, "a") == pytest.approx((100 * 2 + 200 * 4 + 100 * 3 + 100 * 0) / 500)


def test_evaluations_count_by_the_frames_they_stand_for_not_by_their_number(tmp_path):
    crowded = [(frames, 1.0) for frames in range(100)] + [(100, 1.0), (1000, 1.0)]
    sparse = run_of(tmp_path, {"a": [*crowded, (1000.1, 9.0), (2000, 9.0)]}, [("a", 0, 2000)])
    assert metrics.cumulative(sparse, "a") == pytest.approx(5.0, abs=0.01)


def test_the_running_mean_ends_at_the_cumulative_score(tmp_path):
    run = run_of(tmp_path, {"a": [(100, 2.0), (300, 6.0), (400, 0.0)]}, [("a", 0, 500)])
    at = np.array([100.0, 200.0, 500.0])
    expected = [2.0, (200 + 100 * 3) / 200, metrics.cumulative(run, "a")]
    assert metrics.running_cumulative(run.curves["a"], at) == pytest.approx(expected)


def test_cumulative_of_an_unfinished_run_is_read_where_it_stands(tmp_path):
    run = run_of(tmp_path, {"a": [(0, 0.0), (200, 4.0)]}, [("a", 0, 1000)], status="interrupted")
    assert metrics.cumulative(run, "a") == pytest.approx(2.0)


def test_final_is_the_mean_of_the_last_two_percent(tmp_path):
    run = run_of(tmp_path, {"a": [(980, 100.0), (981, 4.0), (1000, 6.0)]}, [("a", 0, 1000)])
    assert metrics.final(run, "a") == pytest.approx(5.0)
    late = run_of(tmp_path, {"a": [(100, 1.0), (900, 7.0)]}, [("a", 0, 1000)])
    assert metrics.final(late, "a") == 7.0


def test_backward_transfer_is_final_minus_end_of_first_visit(tmp_path):
    run = run_of(tmp_path, POINTS, VISITS)
    assert metrics.backward_transfer(run, "a") == pytest.approx(6.0 - 8.0)
    assert metrics.backward_transfer(run, "b") == pytest.approx(7.0 - 5.0)


def test_first_visit_mean_is_over_that_visit_only(tmp_path):
    run = run_of(tmp_path, POINTS, VISITS)
    assert metrics.first_visit_mean(run, "a") == pytest.approx(4.0)
    assert metrics.first_visit_mean(run, "b") == pytest.approx(3.0)
    assert metrics.first_visit_mean(run, "c") is None


def test_forward_transfer_compares_the_same_number_of_own_frames(make_run):
    make_run.separate("separate", 0, returns=lambda task, share: 20 * share, visit_frames=100)
    separate = load_runs([make_run.root])
    # Two tasks, 200 frames of each: the first 100 own frames are the first 200 of the common axis, mean return 5.
    run = load_run(make_run("clear", 0, returns=lambda task, share: 8.0, visit_frames=100))
    assert metrics.forward_transfer(run, "b", separate) == pytest.approx(8.0 - 5.0)
    assert metrics.forward_transfer(run, "b", []) is None


def test_probe_mean_is_over_the_probes_visit(tmp_path):
    run = run_of(tmp_path, POINTS, VISITS, probe_task="b")
    assert metrics.probe_mean(run) == pytest.approx(3.0)
    assert metrics.probe_mean(run_of(tmp_path, POINTS, VISITS)) is None


def test_a_task_that_was_never_evaluated_measures_nothing(tmp_path):
    run = run_of(tmp_path, {}, VISITS)
    for measure in (metrics.cumulative, metrics.final, metrics.backward_transfer, metrics.first_visit_mean):
        assert measure(run, "a") is None


def test_the_evaluation_at_the_end_of_the_plan_is_the_final_score(tmp_path):
    run = run_of(tmp_path, POINTS, VISITS, switches={"a": {3: 5.5}})
    assert metrics.final(run, "a") == 5.5 and metrics.final(run, "b") == 7.0
