"""Runs by a schedule and runs without an end: stopped, resumed, and recorded as they were."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from whole_runs import rows, small_config, state

from clearl.errors import RunDirectoryError
from clearl.experiment import run
from clearl.records.schema import Row
from clearl.report.load import load_run


def stop_at(updates: int):
    def stop(row: Row) -> None:
        if row["kind"] == "train" and row["updates"] >= updates:
            os.kill(os.getpid(), signal.SIGTERM)

    return stop


def test_a_run_without_an_end_runs_until_it_is_stopped_and_goes_on(tmp_path: Path) -> None:
    config, out = small_config(cycles="forever", frames_per_visit=200), tmp_path / "run"
    assert run(config, out, console=False, listeners=[stop_at(49)]).status == "interrupted"
    before = state(out)["segment"]
    assert before >= 4, "more than the two visits of one cycle"
    assert run(config, out, console=False, listeners=[stop_at(98)]).status == "interrupted"
    assert state(out)["segment"] > before
    ended = [row["segment"] for row in rows(out, "eval") if row.get("switch") and row["task"] == "breakout"]
    assert ended == list(range(state(out)["segment"]))


def test_a_schedule_that_changed_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    file, out = tmp_path / "plan.yaml", tmp_path / "run"
    file.write_text("segments: [{tasks: [breakout, freeway], weights: [0.25, 0.75], frames: 700}]")
    config = small_config(protocol="schedule", schedule=str(file), cycles=1)
    assert run(config, out, console=False, listeners=[stop_at(7)]).status == "interrupted"
    first = rows(out, "train")[0]
    assert first["shares"] == {"breakout": 0.25, "freeway": 0.75}
    metrics = (out / "metrics.jsonl").read_bytes()
    file.write_text("segments: [{tasks: [breakout], frames: 700}]")
    with pytest.raises(RunDirectoryError, match="is not the schedule that"):
        run(config, out, console=False)
    assert (out / "metrics.jsonl").read_bytes() == metrics
    file.write_text("segments: [{tasks: [breakout, freeway], weights: [0.25, 0.75], frames: 700}]")
    assert run(config, out, console=False).status == "finished"


def test_a_run_by_episodes_reports_as_the_same_run_by_frames(tmp_path: Path) -> None:
    by_episodes = small_config(
        frames_per_visit=None, episodes_per_visit=6, batch_unrolls=4, cycles=2, tasks=("breakout", "breakout@1")
    )
    run(by_episodes, tmp_path / "episodes", console=False)
    true = {row["index"]: row["end_frames"] - row["start_frames"] for row in rows(tmp_path / "episodes", "segment")
            if row["end_frames"] is not None}  # fmt: skip
    assert len(true) == 4 and min(true.values()) > 0
    listed = ", ".join(
        f"{{tasks: [{task}], frames: {true[index]}}}" for index, task in enumerate(("breakout", "breakout@1") * 2)
    )
    (tmp_path / "plan.yaml").write_text(f"segments: [{listed}]")
    by_frames = replace(
        by_episodes, episodes_per_visit=None, frames_per_visit=600, protocol="schedule", cycles=1,
        schedule=str(tmp_path / "plan.yaml"),
    )  # fmt: skip
    run(by_frames, tmp_path / "frames", console=False)
    one, other = load_run(tmp_path / "episodes"), load_run(tmp_path / "frames")
    assert one.spans == other.spans and len(one.spans) == 4
    assert one.planned_frames == other.planned_frames
    for task in ("breakout", "breakout@1"):
        assert one.visits(task) == other.visits(task) and len(one.visits(task)) == 2
        assert one.curves[task].returns.tolist() == other.curves[task].returns.tolist()
