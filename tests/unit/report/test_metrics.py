"""Each measure against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clearl.records import MetricsWriter, RunDir, eval_row, segment_row
from clearl.report import metrics
from clearl.report.load import Curve, Run, Span, load_run, load_runs


def _run(tmp_path, points, visits, *, status: str = "finished", **meta) -> Run:
    """A run with these evaluations and visits [(task, start, end)]."""
    curves = {task: Curve(*np.array(values, dtype=float).T) for task, values in points.items()}
    spans = tuple(Span((task,), start, end) for task, start, end in visits)
    planned = max(span.end for span in spans)
    seen = max((curve.frames[-1] for curve in curves.values()), default=0.0)
    return Run(tmp_path, {"status": status, **meta}, {}, curves, spans, planned, seen)


def test_cumulative_is_the_area_under_straight_lines_over_all_of_training(tmp_path):
    run = _run(tmp_path, {"a": [(100, 2.0), (300, 6.0), (400, 0.0)]}, [("a", 0, 500)])
    # 2 until 100, then (2+6)/2 over 200 frames, (6+0)/2 over 100, then 0 over 100.
    assert metrics.cumulative(run, "a") == pytest.approx((100 * 2 + 200 * 4 + 100 * 3 + 100 * 0) / 500)


def test_evaluations_count_by_the_frames_they_stand_for_not_by_their_number(tmp_path):
    crowded = [(frames, 1.0) for frames in range(100)] + [(100, 1.0), (1000, 1.0)]
    sparse = _run(tmp_path, {"a": [*crowded, (1000.1, 9.0), (2000, 9.0)]}, [("a", 0, 2000)])
    assert metrics.cumulative(sparse, "a") == pytest.approx(5.0, abs=0.01)


def test_the_running_mean_ends_at_the_cumulative_score(tmp_path):
    run = _run(tmp_path, {"a": [(100, 2.0), (300, 6.0), (400, 0.0)]}, [("a", 0, 500)])
    at = np.array([100.0, 200.0, 500.0])
    expected = [2.0, (200 + 100 * 3) / 200, metrics.cumulative(run, "a")]
    assert metrics.running_cumulative(run.curves["a"], at) == pytest.approx(expected)


def test_cumulative_of_an_unfinished_run_is_read_where_it_stands(tmp_path):
    run = _run(tmp_path, {"a": [(0, 0.0), (200, 4.0)]}, [("a", 0, 1000)], status="interrupted")
    assert metrics.cumulative(run, "a") == pytest.approx(2.0)


def test_final_is_the_mean_of_the_last_two_percent(tmp_path):
    run = _run(tmp_path, {"a": [(980, 100.0), (981, 4.0), (1000, 6.0)]}, [("a", 0, 1000)])
    assert metrics.final(run, "a") == pytest.approx(5.0)
    late = _run(tmp_path, {"a": [(100, 1.0), (900, 7.0)]}, [("a", 0, 1000)])
    assert metrics.final(late, "a") == 7.0


VISITS = [("a", 0, 100), ("b", 100, 200), ("a", 200, 300), ("b", 300, 400)]
POINTS = {
    "a": [(0, 0.0), (100, 8.0), (150, 3.0), (200, 2.0), (250, 9.0), (300, 10.0), (400, 6.0)],
    "b": [(0, 1.0), (100, 1.0), (200, 5.0), (300, 4.0), (400, 7.0)],
}


def test_forgetting_and_kept_over_absences(tmp_path):
    run = _run(tmp_path, POINTS, VISITS)
    # a is away over 100..200 (8 to 2) and 300..400 (10 to 6); b over 200..300 (5 to 4), and is there at the end.
    assert metrics.absences(run, "a") == [(8.0, 2.0), (10.0, 6.0)]
    assert metrics.forgetting(run, "a") == pytest.approx((6 + 4) / 2)
    assert metrics.kept(run, "a") == pytest.approx((2 / 8 + 6 / 10) / 2)
    assert metrics.absences(run, "b") == [(5.0, 4.0)]
    assert metrics.forgetting(run, "b") == pytest.approx(1.0)
    assert metrics.kept(run, "b") == pytest.approx(0.8)


def test_an_absence_counts_once_a_whole_segment_of_it_has_passed(tmp_path):
    run = _run(tmp_path, {"a": POINTS["a"][:3]}, VISITS, status="interrupted")
    assert metrics.absences(run, "a") == []
    run = _run(tmp_path, {"a": POINTS["a"][:5]}, VISITS, status="interrupted")
    assert metrics.absences(run, "a") == [(8.0, 2.0)]


def _overshooting_run(tmp_path, *, true_bounds: bool) -> Run:
    """The quickstart's 2 x 2 visits of 500k frames with rounds of 1,280 frames: the last one ends 640 frames late."""
    RunDir.create(tmp_path, config_text="", meta={"status": "finished"})
    tasks, visit, last = ("breakout", "space_invaders"), 500_000, 2_000_640
    with MetricsWriter(tmp_path) as writer:
        for index in range(4):
            start = index * visit
            writer.write(
                segment_row(tasks=[tasks[index % 2]], index=index, start_frames=start, end_frames=start + visit)
            )
        for frames, value in ((0, 0.0), (1_000_000, 30.0), (1_500_000, 1.0), (1_999_360, 90.0), (last, 60.0)):
            for task in tasks:
                writer.write(eval_row(task=task, frames=frames, mean_return=value, episodes=9, updates=0, wall_s=0.0))
        if true_bounds:
            writer.write(segment_row(tasks=[tasks[1]], index=3, start_frames=3 * visit, end_frames=last))
    return load_run(tmp_path)


@pytest.mark.parametrize("true_bounds", [False, True])
def test_the_overshoot_of_the_last_round_is_no_absence(tmp_path, true_bounds):
    run = _overshooting_run(tmp_path, true_bounds=true_bounds)
    assert (run.planned_frames, run.end_frames) == (2_000_000, 2_000_000)
    assert run.visits("space_invaders") == [(500_000, 1_000_000), (1_500_000, 2_000_000)]
    assert metrics.absences(run, "space_invaders") == [(30.0, 1.0)]
    assert run.curves["space_invaders"].frames[-1] == 2_000_000
    assert metrics.final(run, "space_invaders") == 75.0


def test_a_network_that_never_leaves_its_task_has_no_absence(make_run):
    path = make_run("separate", segments=[(["a"], 1000)], tasks=["a"], protocol="separate")
    with MetricsWriter(path, position=(path / "metrics.jsonl").stat().st_size) as writer:
        writer.write(eval_row(task="a", frames=1040, mean_return=2.0, episodes=1, updates=0, wall_s=0.0))
    run = load_run(path)
    assert run.end_frames == 1000 and metrics.kept(run, "a") is None and metrics.forgetting(run, "a") is None


def test_the_evaluation_at_the_switch_belongs_to_the_visit(tmp_path):
    run = _run(tmp_path, {"a": [(100, 8.0)]}, VISITS[:2])
    assert metrics.absences(run, "a") == []
    run = _run(tmp_path, {"a": [(0, 5.0), (150, 3.0)]}, VISITS[:2])
    assert metrics.absences(run, "a") == []


def test_a_task_that_is_never_away_has_no_forgetting(tmp_path):
    run = _run(tmp_path, {"a": [(0, 0.0), (100, 1.0)]}, [("a", 0, 100)])
    assert metrics.forgetting(run, "a") is None and metrics.kept(run, "a") is None
    assert metrics.backward_transfer(run, "a") is None


def test_visits_that_learnt_nothing_say_nothing_about_keeping(tmp_path):
    points = {"a": [(100, 0.1), (200, 0.5), (300, 10.0), (400, 5.0)]}
    assert metrics.kept(_run(tmp_path, points, VISITS), "a") == pytest.approx(0.5)
    negative = {"a": [(100, -8.0), (200, -9.0), (300, -5.0), (400, -6.0)]}
    run = _run(tmp_path, negative, VISITS)
    assert metrics.kept(run, "a") is None and metrics.forgetting(run, "a") == pytest.approx(1.0)


def test_backward_transfer_is_final_minus_end_of_first_visit(tmp_path):
    run = _run(tmp_path, POINTS, VISITS)
    assert metrics.backward_transfer(run, "a") == pytest.approx(6.0 - 8.0)
    assert metrics.backward_transfer(run, "b") == pytest.approx(7.0 - 5.0)


def test_first_visit_mean_is_over_that_visit_only(tmp_path):
    run = _run(tmp_path, POINTS, VISITS)
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
    run = _run(tmp_path, POINTS, VISITS, probe_task="b")
    assert metrics.probe_mean(run) == pytest.approx(3.0)
    assert metrics.probe_mean(_run(tmp_path, POINTS, VISITS)) is None


def test_a_task_that_was_never_evaluated_measures_nothing(tmp_path):
    run = _run(tmp_path, {}, VISITS)
    for measure in (
        metrics.cumulative,
        metrics.final,
        metrics.forgetting,
        metrics.kept,
        metrics.backward_transfer,
        metrics.first_visit_mean,
    ):
        assert measure(run, "a") is None
