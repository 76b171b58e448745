"""Verdicts follow from the runs, and from nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from clearl.report.arms import group_arms
from clearl.report.effects import drift, position_between, ratio, ratio_to_best
from clearl.report.findings import find, judge
from clearl.report.load import load_runs
from clearl.report.stats import Interval

LEVELS = {
    "separate": 10.0,
    "simultaneous": 10.5,
    "sequential": 5.0,
    "clear": 9.5,
    "clear-no-cloning": 8.0,
    "clear-75-25": 9.0,
    "clear-100-replay": 7.0,
    "clear-buffer-1/18": 9.4,
    "clear-buffer-1/180": 6.0,
    "ewc": 6.0,
    "progress-compress": 9.3,
}


def _level(level: float, seed: int):
    return lambda task, share: level * (1 + 0.01 * seed)


def _findings(make_run):
    return {finding.claim.id: finding for finding in find(group_arms(load_runs([make_run.root])))}


@pytest.fixture
def levels(make_run):
    """Every arm of the paper at a constant return, three seeds a hundredth apart."""
    for arm, level in LEVELS.items():
        for seed in range(3):
            make = make_run.separate if arm == "separate" else make_run
            options = {"protocol": "simultaneous"} if arm == "simultaneous" else {}
            make(arm, seed, returns=_level(level, seed), **options)
    return make_run


def test_the_papers_claims_hold_where_the_levels_say_so(levels):
    findings = _findings(levels)
    verdicts = {name: finding.verdict for name, finding in findings.items()}
    assert verdicts == {
        "separate-simultaneous": "holds",
        "sequential-forgets": "does not hold",  # a constant return forgets nothing
        "clear-keeps": "holds",
        "clear-simultaneous": "holds",
        "no-cloning-between": "holds",
        "balance": "holds",
        "full-replay-plasticity": "holds",
        "small-buffer": "holds",
        "tiny-buffer": "does not hold",
        "probe-clear": "undecided",
        "probe-full-replay": "undecided",
        "clear-progress-compress": "holds",
        "clear-ewc": "holds",
    }


def test_the_effects_are_the_ratios_of_the_levels(levels):
    findings = _findings(levels)
    effects = {name: finding.effect.value for name, finding in findings.items() if finding.effect}
    assert effects["clear-simultaneous"] == pytest.approx(9.5 / 10.5)
    assert effects["separate-simultaneous"] == pytest.approx(1.05)
    assert effects["no-cloning-between"] == pytest.approx((8 - 5) / (9.5 - 5))
    assert effects["balance"] == pytest.approx(9.5 / 9.0)
    assert effects["full-replay-plasticity"] == pytest.approx(7 / 9.5)
    assert effects["clear-ewc"] == pytest.approx(9.0 / 6.0)  # the paper's comparison is with 75-25
    assert findings["clear-ewc"].arms == ("clear-75-25", "ewc") and findings["clear-ewc"].seeds == (3, 3)


def test_a_forgetting_baseline_is_found(make_run, learner):
    for seed in range(3):
        agent = learner(("a", "b"), 2, keeps=0.3 + 0.02 * seed)
        make_run("sequential", seed, returns=agent)
    finding = _findings(make_run)["sequential-forgets"]
    assert finding.verdict == "holds" and finding.effect is not None
    assert finding.effect.value == pytest.approx(0.32, abs=0.01)


def _probes(make_run, arm: str, slope: float):
    for position in range(3):
        for seed in range(3):
            value = 10 * (1 + slope * position / 2) + 0.1 * seed
            segments = [(["a"], 100), (["b"], 100), (["a"], 100)]
            segments.insert(position, (["p"], 100))
            make_run(
                arm, seed, returns=lambda task, share, value=value: value, segments=segments, protocol="probe",
                probe_position=position, probe_task="p", name=f"{arm}-{position}-{seed}",
            )  # fmt: skip


def test_the_probe_is_compared_over_its_positions(make_run):
    _probes(make_run, "clear", 0.02)
    _probes(make_run, "clear-100-replay", -0.5)
    findings = _findings(make_run)
    steady, falling = findings["probe-clear"], findings["probe-full-replay"]
    assert steady.verdict == "holds" and falling.verdict == "holds"
    assert falling.effect is not None and falling.effect.value == pytest.approx(-5 / 7.6)
    assert steady.arms == ("clear (probe at 0)", "clear (probe at 1)", "clear (probe at 2)")


def test_plasticity_leaves_out_the_first_task_which_has_nothing_older_to_replay(make_run):
    for seed in range(3):
        make_run("clear", seed, returns=lambda task, share: 10.0)
        make_run("clear-100-replay", seed, returns=lambda task, share: {"a": 10.0, "b": 6.0}[task])
    effect = _findings(make_run)["full-replay-plasticity"].effect
    assert effect is not None and effect.value == pytest.approx(0.6)


def test_what_is_missing_is_said(make_run):
    findings = _findings_of(make_run, {"clear": 2, "simultaneous": 3})
    assert findings["clear-simultaneous"].verdict == "undecided"
    assert findings["clear-simultaneous"].why == "2 finished seeds; a verdict needs 3"
    assert findings["clear-simultaneous"].effect is not None
    assert findings["clear-ewc"].why == "EWC was not run"
    assert findings["probe-clear"].why == "no runs of CLEAR with the probe at two or more positions"


def _findings_of(make_run, seeds: dict[str, int]):
    for arm, count in seeds.items():
        for seed in range(count):
            make_run(arm, seed, returns=_level(LEVELS[arm], seed))
    return _findings(make_run)


def test_unfinished_runs_do_not_count(make_run):
    for seed in range(3):
        make_run("clear", seed, returns=_level(9.0, seed))
        make_run("simultaneous", seed, returns=_level(10.0, seed), until=0.5, status="interrupted")
    finding = _findings(make_run)["clear-simultaneous"]
    assert finding.why == "no run of Simultaneous has finished" and finding.effect is None


def test_scores_below_zero_are_counted_from_the_least_return(make_run):
    for seed in range(3):
        make_run("clear", seed, returns=lambda task, share: -21 + 20 * min(1.0, 1000 * share))
        make_run("simultaneous", seed, returns=lambda task, share: -21 + 40 * min(1.0, 1000 * share))
    effect = _findings(make_run)["clear-simultaneous"].effect
    assert effect is not None and effect.value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.9, 1.1, "holds"),
        (0.8, 1.1, "undecided"),
        (0.5, 0.84, "does not hold"),
        (1.16, 1.2, "does not hold"),
        (0.5, 2.0, "undecided"),
        (None, None, "undecided"),
    ],
)
def test_the_verdict_is_where_the_interval_lies(low, high, verdict):
    assert judge(Interval(1.0, low, high), (0.85, 1.15)) == verdict


def test_effects_by_hand():
    ours, theirs = np.array([[2.0, 3.0], [4.0, 3.0]]), np.array([[6.0, 2.0]])
    assert ratio(ours, theirs) == pytest.approx((3 / 6 + 3 / 2) / 2)
    assert np.isnan(ratio(ours, np.array([[0.0, 1.0]])))
    assert ratio_to_best(ours, theirs, theirs * 2) == pytest.approx(0.5)
    assert position_between(np.array([[4.0]]), np.array([[2.0]]), np.array([[10.0]])) == pytest.approx(0.25)
    assert np.isnan(position_between(np.array([[4.0]]), np.array([[12.0]]), np.array([[10.0]])))
    assert drift(np.array([4.0]), np.array([5.0]), np.array([6.0])) == pytest.approx(2 / 5)


def test_a_finding_carries_the_papers_own_effect_and_its_rule(levels):
    row = _findings(levels)["clear-simultaneous"].to_json()
    assert row["paper_effect"] == pytest.approx((31.40 / 32.35 + 8.00 / 8.81 + 18.13 / 20.56) / 3)
    assert row["holds_within"] == [0.85, None] and row["reason"]
    assert set(row["effect"]) == {"value", "low", "high"}
