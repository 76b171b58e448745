"""What the page draws equals the rows, however many there are."""

from __future__ import annotations

import json
import math

import pytest

from clearl.records import eval_row, segment_row, train_row
from clearl.records.schema import fault_row, resume_row
from clearl.watch.series import BucketedCurves, RunSeries


def a_train_row(updates: int, **extra: object) -> dict:
    return train_row(
        tasks=["a"], frames=updates * 100, updates=updates, fps=5000.0, loss={"value": 2.0}, lag_updates=1.5,
        replay={"held": 7}, wall_s=float(updates), extra=extra,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [1, 2, 99, 100, 101, 1_000, 12_345])
def test_curves_stay_short_and_keep_mean_and_end(rows: int) -> None:
    curves = BucketedCurves(most=100)
    for number in range(rows):
        curves.add(number * 10.0, {"x": float(number), "rare": 1.0 if number % 7 == 0 else None})
    drawn = curves.to_json()
    assert len(drawn["frames"]) <= 100
    assert {len(column) for column in drawn["values"].values()} == {len(drawn["frames"])}
    assert drawn["frames"] == sorted(drawn["frames"])
    assert drawn["frames"][-1] == (rows - 1) * 10.0, "the newest row is always there"
    if rows <= 99:
        assert drawn["values"]["x"] == [float(number) for number in range(rows)]
    mean = sum(drawn["values"]["x"]) / len(drawn["values"]["x"])
    assert mean == pytest.approx((rows - 1) / 2, rel=0.15, abs=1.0)


def test_a_curve_that_begins_late_is_missing_before() -> None:
    curves = BucketedCurves()
    curves.add(1.0, {"x": 1.0})
    curves.add(2.0, {"x": 2.0, "y": 5.0})
    assert curves.to_json()["values"] == {"x": [1.0, 2.0], "y": [None, 5.0]}


def test_values_that_are_no_numbers_are_missing_and_the_answer_is_strict_json() -> None:
    series = RunSeries()
    series.update({**a_train_row(1), "grad_norm": math.inf, "fps": None, "diagnostics": {"new": "nonsense"}})
    series.update({**a_train_row(2), "grad_norm": 10**400, "loss": {"value": "x"}})
    text = json.dumps(series.to_json(), allow_nan=False)
    assert "grad_norm" not in json.loads(text)["train"]["values"]


def test_evaluations_switches_segments_events_and_the_last_state() -> None:
    series = RunSeries()
    series.update(segment_row(tasks=["a"], start_frames=0, end_frames=500, index=0))
    series.update(segment_row(tasks=["b"], start_frames=500, end_frames=None, index=1))
    series.update(eval_row(task="a", frames=0, mean_return=1.0, episodes=2, updates=0, wall_s=0.0))
    series.update(
        {**eval_row(task="a", frames=510, mean_return=3.0, episodes=2, updates=5, wall_s=1.0)}
        | {"switch": True, "segment": 0}
    )
    series.update(a_train_row(6, diagnostics={"replay": {"kl": 0.25}}, health={"worker-0": {"state": "running"}}))
    series.update(fault_row(frames=600, worker="worker-0", problem="gone <b>", wall_s=2.0))
    series.update(resume_row(frames=600, updates=6, wall_s=3.0))
    drawn = series.to_json()
    assert drawn["evaluations"]["a"] == {"frames": [0.0, 510.0], "values": {"return": [1.0, 3.0]}}
    assert drawn["switches"] == [{"segment": 0, "returns": {"a": 3.0}}]
    assert [segment["tasks"] for segment in drawn["segments"]] == [["a"], ["b"]]
    assert drawn["train"]["values"]["kl/replay"] == [0.25]
    assert drawn["counts"] == {"fault": 1, "restart": 0, "resume": 1}
    assert drawn["events"][0]["problem"] == "gone <b>"
    assert (drawn["frames"], drawn["health"]) == (600, {"worker-0": {"state": "running"}})


def test_a_segment_that_begins_and_ends_replaces_its_planned_row() -> None:
    series = RunSeries()
    for index in range(2):
        series.update(
            segment_row(tasks=["ab"[index]], start_frames=500 * index, end_frames=500 * index + 500, index=index)
        )
    series.update(segment_row(tasks=["a"], start_frames=0, end_frames=540, index=0))
    drawn = series.to_json()
    assert drawn["planned_segments"] == 2
    assert [(each["index"], each["end_frames"]) for each in drawn["segments"]] == [(0, 540), (1, 1000)]


def test_what_replay_holds_of_each_task_is_shown_until_a_row_says_otherwise() -> None:
    series = RunSeries()
    held = {"breakout": {"unrolls": 3, "median_age_frames": 10}}
    series.update({**a_train_row(1), "replay": {"held": 3, "by_task": held}})
    series.update({**a_train_row(2), "replay": {"held": 4}})
    assert series.to_json()["replay"] == {"held": 4, "by_task": held, "by_task_frames": 100}


def test_of_very_many_segments_those_around_now_are_sent() -> None:
    series = RunSeries()
    for index in range(3_000):
        series.update(segment_row(tasks=["a"], start_frames=index * 10, end_frames=index * 10 + 10, index=index))
        evaluated = eval_row(task="a", frames=index * 10, mean_return=1.0, episodes=1, updates=0, wall_s=0.0)
        if index < 1_000:
            series.update({**evaluated, "switch": True, "segment": index})
    drawn = series.to_json()
    assert drawn["planned_segments"] == 3_000
    assert [segment["index"] for segment in drawn["segments"]] == list(range(800, 1_200)), "now is at frame 9,990"
    assert [switch["segment"] for switch in drawn["switches"]] == list(range(900, 1_000))
