"""What an absence does to a task, against numbers worked out by hand."""

from __future__ import annotations

import pytest
from made_runs import POINTS, VISITS, run_of

from clearl.records import MetricsWriter, RunDir, eval_row, segment_row
from clearl.report import metrics, retention
from clearl.report.load import load_run
from clearl.report.run import Run


def _pairs(run: Run, task: str) -> list[tuple[float, float]]:
    return [(absence.learnt, absence.after) for absence in retention.absences(run, task)]


def test_forgetting_and_kept_over_absences(tmp_path):
    run = run_of(tmp_path, POINTS, VISITS)
    # a is away over 100..200 (8 to 2) and 300..400 (10 to 6); b over 200..300 (5 to 4), and is there at the end.
    assert _pairs(run, "a") == [(8.0, 2.0), (10.0, 6.0)]
    assert retention.forgetting(run, "a") == pytest.approx((6 + 4) / 2)
    assert retention.kept(run, "a", 0.0) == pytest.approx((2 + 6) / (8 + 10))
    assert _pairs(run, "b") == [(5.0, 4.0)]
    assert retention.forgetting(run, "b") == pytest.approx(1.0)
    assert retention.kept(run, "b", 0.0) == pytest.approx(0.8)


def test_scores_count_from_the_floor(tmp_path):
    run = run_of(tmp_path, POINTS, VISITS)
    assert retention.kept(run, "b", 1.0) == pytest.approx(3 / 4)
    negative = {"a": [(0, -500.0), (100, -100.0), (200, -200.0), (300, -80.0), (400, -100.0)]}
    run = run_of(tmp_path, negative, VISITS)
    assert retention.kept(run, "a", -500.0) == pytest.approx((300 + 400) / (400 + 420))
    assert retention.forgetting(run, "a") == pytest.approx((100 + 20) / 2)


def test_the_area_lost_is_the_mean_of_what_was_missing_while_away(tmp_path):
    run = run_of(tmp_path, POINTS, VISITS)
    # Away over 100..200: 8, 3, 2 on straight lines, mean (5.5 + 2.5) / 2 = 4; over 300..400: 10 to 6, mean 8.
    assert retention.area_lost(run, "a", 0.0) == pytest.approx(1 - (4 + 8) / (8 + 10))
    assert retention.area_lost(run, "b", 1.0) == pytest.approx(1 - 3.5 / 4)


def test_evaluations_at_switches_take_the_place_of_single_noisy_ones(tmp_path):
    switches = {"a": {0: 7.0, 1: 3.5, 2: 9.0, 3: 4.5}}
    run = run_of(tmp_path, POINTS, VISITS, switches=switches)
    assert _pairs(run, "a") == [(7.0, 3.5), (9.0, 4.5)]
    assert retention.kept(run, "a", 0.0) == pytest.approx(0.5)
    assert all(absence.at_switches for absence in retention.absences(run, "a"))
    assert not any(absence.at_switches for absence in retention.absences(run, "b"))


def test_the_task_by_time_matrix(tmp_path):
    run = run_of(tmp_path, POINTS, VISITS, switches={"a": {1: 2.5}})
    assert retention.segment_scores(run, "a") == [8.0, 2.5, 10.0, 6.0]
    assert retention.segment_scores(run, "b") == [1.0, 5.0, 4.0, 7.0]
    early = run_of(tmp_path, {"a": POINTS["a"][:3]}, VISITS, status="interrupted")
    assert retention.segment_scores(early, "a") == [8.0, None, None, None]


def test_an_absence_counts_once_a_whole_segment_of_it_has_passed(tmp_path):
    run = run_of(tmp_path, {"a": POINTS["a"][:3]}, VISITS, status="interrupted")
    assert _pairs(run, "a") == []
    run = run_of(tmp_path, {"a": POINTS["a"][:5]}, VISITS, status="interrupted")
    assert _pairs(run, "a") == [(8.0, 2.0)]


def test_the_evaluation_at_the_switch_belongs_to_the_visit(tmp_path):
    run = run_of(tmp_path, {"a": [(100, 8.0)]}, VISITS[:2])
    assert _pairs(run, "a") == []
    run = run_of(tmp_path, {"a": [(0, 5.0), (150, 3.0)]}, VISITS[:2])
    assert _pairs(run, "a") == []


def test_a_task_that_is_never_away_has_no_forgetting(tmp_path):
    run = run_of(tmp_path, {"a": [(0, 0.0), (100, 1.0)]}, [("a", 0, 100)])
    assert retention.forgetting(run, "a") is None and retention.kept(run, "a", 0.0) is None
    assert retention.area_lost(run, "a", 0.0) is None and metrics.backward_transfer(run, "a") is None
    assert retention.kept(run, "absent", 0.0) is None


def test_visits_that_learnt_nothing_say_nothing_about_keeping(tmp_path):
    points = {"a": [(0, 10.0), (100, 0.1), (200, 0.5), (300, 0.2), (400, 0.4)]}
    assert retention.kept(run_of(tmp_path, points, VISITS), "a", 0.0) is None


def test_an_absence_before_which_little_was_learnt_weighs_little(tmp_path):
    points = {"a": [(100, 0.1), (200, 0.6), (300, 10.0), (400, 5.0)]}
    assert retention.kept(run_of(tmp_path, points, VISITS), "a", 0.0) == pytest.approx(5.6 / 10.1)


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
    assert _pairs(run, "space_invaders") == [(30.0, 1.0)]
    assert run.curves["space_invaders"].frames[-1] == 2_000_000
    assert metrics.final(run, "space_invaders") == 75.0


def test_a_network_that_never_leaves_its_task_has_no_absence(make_run):
    path = make_run("separate", segments=[(["a"], 1000)], tasks=["a"], protocol="separate")
    with MetricsWriter(path, position=(path / "metrics.jsonl").stat().st_size) as writer:
        writer.write(eval_row(task="a", frames=1040, mean_return=2.0, episodes=1, updates=0, wall_s=0.0))
    run = load_run(path)
    assert run.end_frames == 1000 and retention.kept(run, "a", 0.0) is None and retention.forgetting(run, "a") is None
