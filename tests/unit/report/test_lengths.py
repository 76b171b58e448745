"""Runs of different lengths: compress phases are left out, the rest is compared as far as all runs go."""

from __future__ import annotations

import pytest

from clearl.records import MetricsWriter, RunDir, eval_row, segment_row
from clearl.report import make_report, summarise_runs
from clearl.report.load import load_run


def _compressing_run(path, *, on_top: bool = True, in_rows: bool = False):
    """Two visits of 100 frames, each with 50 compress frames on top; the score doubles while compressing.

    The frames on top are told by the settings, as in older runs, or by the segments.
    """
    told = f"frames_per_visit: 100\ncompress_on_top: {str(on_top).lower()}\n"
    settings = "method: progress-compress\n" + ("" if in_rows else told)
    meta = {"status": "finished", "arm": "progress-compress", "suite": "minatar", "seed": 0}
    RunDir.create(path, config_text=settings, meta=meta)
    with MetricsWriter(path) as writer:
        for index, task in enumerate("ab"):
            extra, start = (50 if in_rows else 0), 150 * index
            writer.write(
                segment_row(tasks=[task], index=index, start_frames=start, end_frames=start + 150, extra_frames=extra)
            )
        for frames, value in ((0, 0.0), (50, 1.0), (100, 2.0), (125, 3.0), (150, 4.0), (200, 5.0), (300, 8.0)):
            for task in "ab":
                writer.write(eval_row(task=task, frames=frames, mean_return=value, episodes=1, updates=0, wall_s=0.0))
    return path


@pytest.mark.parametrize("in_rows", [False, True])
def test_compress_frames_on_top_are_left_out_of_the_axis(tmp_path, in_rows):
    run = load_run(_compressing_run(tmp_path / "run", in_rows=in_rows))
    assert (run.planned_frames, run.compress_frames) == (200, 100)
    assert [(span.start, span.end) for span in run.spans] == [(0, 100), (100, 200)]
    assert run.curves["a"].frames.tolist() == [0, 50, 100, 150, 200]
    assert run.curves["a"].returns.tolist() == [0, 1, 4, 5, 8]  # at the switch, the score after compressing


def test_compress_frames_within_the_visit_stay(tmp_path):
    run = load_run(_compressing_run(tmp_path / "run", on_top=False))
    assert run.planned_frames == 300 and run.compress_frames == 0


def test_a_compressing_run_stands_beside_the_others(make_run):
    make_run("clear", 0, visit_frames=100, cycles=1)
    _compressing_run(make_run.root / "pc")
    summary = summarise_runs([make_run.root])
    assert any("100 compress frames on top of their visits" in note for note in summary.notes)
    assert not any("different lengths" in note for note in summary.notes)


def test_the_common_part_is_compared_and_the_paths_are_whole(make_run, tmp_path):
    long = make_run("sequential", 0, cycles=3, returns=lambda task, share: 30 * share)
    short = make_run("clear", 0, cycles=2, returns=lambda task, share: 20 * share)
    summary = make_report([make_run.root], tmp_path / "report")
    (note, *_) = [note for note in summary.notes if "different lengths" in note]
    assert str(long) in note and str(short) in note and "first 4k frames" in note
    # Both rise by 5 a thousand frames, so that their first 4,000 frames are alike.
    assert summary.arms["sequential"].tasks["a"]["cumulative"].mean == pytest.approx(10.0)
    assert summary.arms["clear"].tasks["a"]["cumulative"].mean == pytest.approx(10.0)
    assert summary.arms["sequential"].tasks["a"]["final"].mean == pytest.approx(20.0, abs=0.3)


def test_different_schedules_within_the_common_part_are_told(make_run):
    make_run("sequential", 0, visit_frames=500)
    make_run("clear", 0, visit_frames=1000)
    assert any("schedules differ" in note for note in summarise_runs([make_run.root]).notes)


def test_plans_that_differ_by_a_round_are_of_one_length(make_run):
    make_run("sequential", 0, visit_frames=10_000)
    make_run("clear", 0, visit_frames=10_001)
    assert not any("different lengths" in note for note in summarise_runs([make_run.root]).notes)
