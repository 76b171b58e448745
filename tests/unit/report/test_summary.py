"""The numbers that others read, and the sentence that sums them up."""

from __future__ import annotations

import numpy as np
import pytest

from clearl.report.arms import group_arms
from clearl.report.load import load_runs
from clearl.report.summary import headline, summarise


def _summary(make_run):
    return summarise(group_arms(load_runs([make_run.root])), title="test")


def test_the_summary_has_the_fixed_form(make_run):
    for seed, level in ((1, 2.0), (4, 4.0)):
        make_run("clear", seed, returns=lambda task, share, level=level: level * share)
    arm = _summary(make_run).to_json()["arms"]["clear"]
    assert arm["seeds"] == [1, 4] and list(arm["tasks"]) == ["a", "b"]
    assert arm["tasks"]["a"]["cumulative"] == {
        "mean": pytest.approx(1.5),
        "std": pytest.approx(0.5**0.5),
        "per_seed": [pytest.approx(1.0), pytest.approx(2.0)],
    }
    assert arm["tasks"]["b"]["final"]["per_seed"] == [2.0, 4.0]
    # a leaves at 1/4 and returns at 1/2, leaves at 3/4 and the run ends: it gains a quarter of the level each time.
    assert arm["tasks"]["a"]["forgetting"]["per_seed"] == [pytest.approx(-0.5), pytest.approx(-1.0)]
    assert arm["boundaries"] == "none"


def _levels(levels: dict[str, float], floor: float = 0.0):
    return lambda task, share: levels[task] if share > 0 else floor


def test_normalised_scores_are_shares_of_simultaneous_training(make_run):
    for seed in range(3):
        make_run(
            "simultaneous", seed, protocol="simultaneous", evals_per_visit=40, returns=_levels({"a": 4.0, "b": 40.0})
        )
        make_run("clear", seed, returns=_levels({"a": 6.0, "b": 60.0}))
    summary = _summary(make_run)
    assert summary.reference == "simultaneous"
    iqm = summary.arms["clear"].iqm
    assert iqm is not None and iqm.value == pytest.approx(1.5)


def test_forward_transfer_needs_the_separate_runs(make_run):
    make_run("clear", 0)
    assert "forward_transfer" not in _summary(make_run).arms["clear"].tasks["a"]
    make_run.separate("separate", 0, returns=lambda task, share: 0.25)
    summary = _summary(make_run)
    stat = summary.arms["clear"].stat("a", "forward_transfer")
    assert stat is not None and stat.mean == pytest.approx(0.75)
    assert summary.arms["separate"].stat("a", "forward_transfer") is None


def _forgets(keeps: dict[str, float]):
    """At the end of a visit a task stands at 10, at the end of an absence at 10 * keeps; untrained, at 0."""

    def returns(task: str, share: float) -> float:
        if share == 0:
            return 0.0
        visit = int(np.ceil(share * 4 - 1e-9)) - 1
        return 10.0 if "ab"[visit % 2] == task else 10.0 * keeps[task]

    return returns


def test_the_headline_says_what_the_two_arms_kept(make_run):
    make_run("sequential", 0, returns=_forgets({"a": 0.23, "b": 0.5}))
    make_run("clear", 0, returns=_forgets({"a": 0.99, "b": 0.95}))
    assert headline(_summary(make_run)) == (
        "While a task was away, the baseline kept 36 % of its score on it and CLEAR 97 % (mean of 2 tasks); the gap "
        "was widest on a: 23 % against 99 %."
    )


def test_the_headline_is_as_frank_where_clear_does_worse(make_run):
    make_run("sequential", 0, returns=_forgets({"a": 0.9, "b": 0.5}))
    make_run("clear", 0, returns=_forgets({"a": 0.2, "b": 0.5}))
    assert headline(_summary(make_run)).endswith("the gap was widest on a: 90 % against 20 %.")


def test_the_headline_tells_of_no_gap_where_there_is_none(make_run):
    for arm in ("sequential", "clear"):
        make_run(arm, 0, returns=_forgets({"a": 0.9, "b": 0.5}))
    assert headline(_summary(make_run)).endswith("kept 70 % of its score on it and CLEAR 70 % (mean of 2 tasks).")


def test_the_headline_compares_with_the_arm_that_scores_best_not_with_one_that_keeps_little(make_run):
    make_run("sequential", 0, returns=_forgets({"a": 0.2, "b": 0.2}))
    make_run("clear-75-25", 0, returns=_forgets({"a": 0.9, "b": 0.9}))
    make_run("ewc", 0, returns=_levels({"a": 1.0, "b": 1.0}))
    assert headline(_summary(make_run)).startswith("While a task was away, the baseline kept 20 % of its score on it")
    assert "CLEAR 75-25 90 %" in headline(_summary(make_run))


def test_the_headline_of_one_task_that_was_away(make_run):
    for arm, keeps in (("sequential", 0.23), ("clear", 0.99)):
        make_run(
            arm, 0, cycles=1, returns=lambda task, share, keeps=keeps: 10 * keeps * (share > 0.5) or 10.0 * (share > 0)
        )
    assert headline(_summary(make_run)) == "The baseline kept 23 % of its a score while away, CLEAR kept 99 %."


def test_the_headline_of_one_arm(make_run):
    make_run("clear", 0, returns=_forgets({"a": 0.9, "b": 0.8}))
    assert headline(_summary(make_run)) == "While a task was away, CLEAR kept 85 % of its score on it."


def test_the_headline_where_nothing_is_ever_away_or_evaluated(make_run):
    path = make_run("simultaneous", 0, protocol="simultaneous", returns=lambda task, share: 2.0)
    assert headline(_summary(make_run)) == (
        "Mean return over all of training: Simultaneous 2.00 on a, 2.00 on b."
    )  # fmt: skip
    (path / "metrics.jsonl").write_bytes(b"")
    assert headline(_summary(make_run)) == "No evaluation has been recorded yet."


def test_notes_say_what_is_unfinished_or_missing(make_run):
    make_run("clear", 0, until=0.25, status="interrupted")
    (make_run("sequential", 0, status="running") / "metrics.jsonl").write_bytes(b"")
    assert _summary(make_run).notes == [
        "Baseline (sequential), seed 0: nothing has been evaluated yet.",
        "CLEAR, seed 0: not finished, measured at 25% of its frames; left out of the findings.",
    ]


def test_a_task_that_one_seed_lacks_is_noted_and_the_rest_measured(make_run):
    make_run("clear", 0, tasks=["a", "b"])
    path = make_run("clear", 1, tasks=["a", "b"])
    lines = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (path / "metrics.jsonl").write_bytes(b"".join(line for line in lines if b'"task":"b"' not in line))
    summary = _summary(make_run)
    assert summary.arms["clear"].tasks["b"]["cumulative"].per_seed == (1.0, None)
    assert summary.notes[-1] == "CLEAR: not every seed evaluated b."
    assert summary.notes[0].startswith("Not every run was evaluated exactly at its switches")


def test_negative_returns_are_normalised_from_the_untrained_return(make_run):
    for seed in range(3):
        make_run("simultaneous", seed, protocol="simultaneous", evals_per_visit=40,
                 returns=_levels({"a": -100.0, "b": -20.0}, floor=-500.0))  # fmt: skip
        make_run("clear", seed, returns=_levels({"a": -300.0, "b": -260.0}, floor=-500.0))
    summary = _summary(make_run)
    assert summary.arms["clear"].normalised == pytest.approx((200 / 400 + 240 / 480) / 2)
    assert summary.arms["clear"].tasks["a"]["kept"].mean == pytest.approx(1.0)
    assert summary.scales["a"].floor == -500.0 and summary.scales["a"].top == -100.0
    assert summary.to_json()["scales"]["b"] == {"floor": -500.0, "top": -20.0}


def test_the_reference_is_not_the_arm_with_the_largest_returns_on_one_task(make_run):
    make_run("x", 0, returns=_levels({"a": 1.0, "b": 500.0}))
    make_run("y", 0, returns=_levels({"a": 10.0, "b": 450.0}))
    assert _summary(make_run).reference == "y"


def test_the_matrix_and_the_oracle_are_in_the_json(make_run):
    make_run("simultaneous", 0, protocol="simultaneous", cycles=1, returns=lambda task, share: 10 * share)
    make_run("clear", 0, cycles=1, returns=_levels({"a": 6.0, "b": 8.0}))
    data = _summary(make_run).to_json()
    assert data["arms"]["clear"]["matrix"] == {
        "segments": [{"tasks": ["a"], "end_frames": 1000.0}, {"tasks": ["b"], "end_frames": 2000.0}],
        "tasks": {"a": [6.0, 6.0], "b": [8.0, 8.0]},
    }
    assert data["oracle"]["cumulative"] == {"a": pytest.approx(7.5, abs=0.02), "b": pytest.approx(2.5, abs=0.02)}
    assert data["oracle"]["normalised"] == pytest.approx((7.5 / 5 + 2.5 / 5) / 2, abs=0.01)


def test_owners_metrics_stand_under_their_own_names(make_run):
    make_run.separate("separate", 0, returns=lambda task, share: 10 * share)
    make_run("clear", 0, returns=_levels({"a": 6.0, "b": 8.0}))
    stats = _summary(make_run).arms["clear"].tasks["a"]
    assert stats["cw_performance"].mean == pytest.approx(0.6) and stats["cw_forgetting"].mean == pytest.approx(0.0)
    assert {"cw_forward_transfer", "forward_transfer", "regret", "area_lost", "kept"} <= set(stats)
