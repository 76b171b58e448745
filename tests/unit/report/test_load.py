"""Every run below the directories is found once, in whatever state it was left."""

from __future__ import annotations

import json

import numpy as np
import pytest

from clearl.errors import ReportError
from clearl.records import MetricsWriter, RunDir, eval_row, segment_row
from clearl.report.load import load_run, load_runs


def test_runs_are_found_below_the_given_directories_and_counted_once(make_run):
    first, second = make_run("clear", 0), make_run("clear", 1)
    (first / "checkpoints" / "x").mkdir(parents=True)
    (first / "checkpoints" / "x" / "metrics.jsonl").write_text("")  # nothing below a run is another run
    runs = load_runs([make_run.root, first, second])
    assert sorted(run.path.name for run in runs) == ["clear-seed0", "clear-seed1"]
    assert [run.seed for run in runs] == [0, 1]


def test_a_run_has_its_curves_spans_and_length(make_run):
    run = load_run(make_run("clear", 3, returns=lambda task, share: share * 8, cycles=1, evals_per_visit=2))
    assert run.curves["a"].frames.tolist() == [0, 500, 1000, 1500, 2000]
    assert run.curves["a"].returns.tolist() == [0, 2, 4, 6, 8]
    assert [(span.tasks, span.start, span.end) for span in run.spans] == [(("a",), 0, 1000), (("b",), 1000, 2000)]
    assert (run.planned_frames, run.end_frames, run.is_finished) == (2000, 2000, True)
    assert run.visits("b") == [(1000, 2000)] and run.config["learning_rate"] == 0.003


def test_two_evaluations_of_the_same_weights_count_as_their_mean(tmp_path):
    RunDir.create(tmp_path, config_text="", meta={})
    with MetricsWriter(tmp_path) as writer:
        for frames, value in ((20, 5.0), (10, 1.0), (10, 3.0)):
            writer.write(eval_row(task="a", frames=frames, mean_return=value, episodes=1, updates=0, wall_s=0.0))
        writer.write(eval_row(task="a", frames=30, mean_return=np.nan, episodes=1, updates=0, wall_s=0.0))
    curve = load_run(tmp_path).curves["a"]
    assert (curve.frames.tolist(), curve.returns.tolist()) == ([10, 20], [2, 5])


def test_evaluations_at_switches_are_read_by_segment_and_weigh_by_their_episodes(tmp_path):
    RunDir.create(tmp_path, config_text="", meta={})
    with MetricsWriter(tmp_path) as writer:
        common = {"task": "a", "frames": 10, "updates": 0, "wall_s": 0.0}
        writer.write(eval_row(mean_return=1.0, episodes=16, **common))
        writer.write({**eval_row(mean_return=6.0, episodes=64, segment=2, **common), "success_rate": 0.75})
    run = load_run(tmp_path)
    assert run.switches == {"a": {2: 6.0}}
    assert run.curves["a"].returns.tolist() == [(16 * 1.0 + 64 * 6.0) / 80]
    assert run.success["a"].returns.tolist() == [0.75]


def test_of_two_columns_the_one_that_is_not_secondary_is_plotted(tmp_path):
    RunDir.create(tmp_path, config_text="", meta={})
    with MetricsWriter(tmp_path) as writer:
        common = {"task": "a", "frames": 20, "episodes": 1, "updates": 0, "wall_s": 0.0}
        writer.write(eval_row(mean_return=9.0, column="active", **common))
        writer.write(eval_row(mean_return=3.0, column="knowledge_base", secondary=True, **common))
    run = load_run(tmp_path)
    assert run.curves["a"].returns.tolist() == [9.0] and run.has_two_columns


def test_skipped_evaluations_are_counted(tmp_path):
    RunDir.create(tmp_path, config_text="", meta={})
    with MetricsWriter(tmp_path) as writer:
        for skipped in (2, 0, 3):
            common = {"frames": 20, "episodes": 1, "updates": 0, "wall_s": 0.0}
            writer.write(eval_row(task="a", mean_return=9.0, skipped=skipped, **common))
    assert load_run(tmp_path).skipped == 5


def test_neighbouring_visits_are_one(make_run):
    run = load_run(make_run("clear", segments=[(["a"], 100), (["a", "b"], 100), (["b"], 100)]))
    assert run.visits("a") == [(0, 200)] and run.visits("b") == [(100, 300)]


def test_a_later_segment_row_takes_the_place_of_the_earlier(tmp_path):
    RunDir.create(tmp_path, config_text="", meta={"status": "finished"})
    with MetricsWriter(tmp_path) as writer:
        writer.write(segment_row(tasks=["a"], start_frames=0, end_frames=None, index=0))
        writer.write(segment_row(tasks=["b"], start_frames=None, end_frames=None, index=1))
    run = load_run(tmp_path)
    assert run.planned_frames is None and run.visits("b") == []
    with MetricsWriter(tmp_path) as writer:
        writer.write(eval_row(task="a", frames=900, mean_return=1.0, episodes=1, updates=0, wall_s=0.0))
        writer.write(segment_row(tasks=["a"], start_frames=0, end_frames=700, index=0))
        writer.write(segment_row(tasks=["b"], start_frames=700, end_frames=None, index=1))
    run = load_run(tmp_path)
    assert run.visits("a") == [(0, 700)] and run.visits("b") == [(700, 900)]


def test_an_unfinished_run_is_measured_as_far_as_it_got(make_run):
    run = load_run(make_run("clear", until=0.3, status="interrupted"))
    assert not run.is_finished and run.planned_frames == 4000 and run.end_frames == 1200
    assert run.visits("a") == [(0, 1000)] and run.visits("b") == [(1000, 1200)]


def test_separate_parts_become_one_run_on_the_common_axis(make_run):
    def returns(task: str, share: float) -> float:
        return {"a": 2.0, "b": 4.0}[task] * share

    path = make_run.separate("separate", 5, returns=returns, evals_per_visit=2)
    (run,) = load_runs([path])
    assert run.path == path and run.seed == 5 and run.is_finished
    assert run.curves["b"].frames.tolist() == [0, 2000, 4000] and run.curves["b"].returns.tolist() == [0, 2, 4]
    assert run.visits("a") == [(0, 4000)] == run.visits("b")
    assert run.planned_frames == 4000


def test_a_separate_run_with_a_meta_file_of_its_own_is_still_one_run(make_run):
    path = make_run.separate("separate")
    RunDirMeta = {"v": 1, "protocol": "separate", "parts": ["a", "b"]}
    (path / "meta.json").write_text(json.dumps(RunDirMeta))
    (path / "config.yaml").write_text("method: baseline")
    assert len(load_runs([path])) == 1


def test_missing_parts_are_noted(make_run):
    make_run("separate", protocol="separate", segments=[(["a"], 100)], frames_scale=3, name="sep/a", tasks=["a"])
    (run,) = load_runs([make_run.root])
    assert run.notes == ("1 of 3 tasks were run",) and not run.is_finished


def test_a_run_that_recorded_nothing_is_still_there(make_run):
    path = make_run("clear", status="running")
    (path / "metrics.jsonl").write_bytes(b"")
    run = load_run(path)
    assert run.curves == {} and run.planned_frames == 4000 and run.end_frames == 0
    (path / "metrics.jsonl").unlink()
    assert len(load_runs([path])) == 1


def test_rows_alone_make_a_run_too(tmp_path):
    row = {"v": 1, "kind": "eval", "task": "a", "frames": 10, "return": 2.0, "episodes": 1, "updates": 1, "wall_s": 0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    run = load_run(tmp_path)
    assert run.curves["a"].returns.tolist() == [2.0]
    assert run.notes == ("there is no meta.json", "there is no config.yaml")


def test_damaged_rows_are_left_out_and_noted(make_run):
    path = make_run("clear")
    data = (path / "metrics.jsonl").read_bytes()
    (path / "metrics.jsonl").write_bytes(data.replace(b'"frames":200,', b'"frames":900,', 1))
    assert load_run(path).notes == ("1 damaged rows were left out",)


def test_nothing_to_report_is_an_error(tmp_path):
    with pytest.raises(ReportError, match="no run found"):
        load_runs([tmp_path])
    with pytest.raises(ReportError, match="absent is not there"):
        load_runs([tmp_path / "absent"])
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="file is no directory"):
        load_runs([tmp_path / "file"])
    (tmp_path / "meta.json").write_text("{")
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(ReportError, match=r"cannot report this run: .*meta\.json"):
        load_runs([tmp_path])
