"""Verdicts follow from the runs, and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from clearl.report.arms import group_arms
from clearl.report.effects import drift, position_between, ratio, ratio_to_best
from clearl.report.findings import find, leaning
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
    """Nothing before training, then at once a return that differs by a hundredth from seed to seed."""
    return lambda task, share: level * (1 + 0.01 * seed) if share > 0 else 0.0


def _findings(make_run):
    return {finding.claim.id: finding for finding in find(group_arms(load_runs([make_run.root])))}


@pytest.fixture
def levels(make_run):
    """Every arm of the paper at a constant return, five seeds a hundredth apart."""
    for arm, level in LEVELS.items():
        for seed in range(5):
            make = make_run.separate if arm == "separate" else make_run
            options = {"evals_per_visit": 40} if arm in ("separate", "simultaneous") else {}
            options |= {"protocol": "simultaneous"} if arm == "simultaneous" else {}
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
        "progress-compress-ewc": "holds",
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
    assert findings["clear-ewc"].arms == ("clear-75-25", "ewc") and findings["clear-ewc"].seeds == (5, 5)


def test_a_forgetting_baseline_is_found(make_run, learner):
    for seed in range(5):
        agent = learner(("a", "b"), 2, keeps=0.3 + 0.02 * seed)
        make_run("sequential", seed, returns=agent)
    finding = _findings(make_run)["sequential-forgets"]
    assert finding.verdict == "holds" and finding.effect is not None
    assert finding.effect.value == pytest.approx(0.34, abs=0.01)
    assert {task: one.verdict for task, one in finding.tasks.items()} == {"a": "holds", "b": "holds"}


def _probes(make_run, arm: str, slope: float, *, positions: Sequence[int] = range(3)):
    for position in positions:
        for seed in range(5):
            value = 10 * (1 + slope * position / 2) + 0.1 * seed
            segments = [(["a"], 100), (["b"], 100), (["a"], 100)]
            segments.insert(position, (["p"], 100))
            make_run(
                arm, seed, returns=lambda task, share, value=value: value if share > 0 else 0.0, segments=segments,
                protocol="probe", probe_position=position, probe_task="p", name=f"{arm}-{position}-{seed}",
                evals_per_visit=100,
            )  # fmt: skip


def test_the_probe_is_compared_with_the_baselines(make_run):
    _probes(make_run, "sequential", 0.4)
    _probes(make_run, "clear", 0.42)
    _probes(make_run, "clear-100-replay", -0.5)
    findings = _findings(make_run)
    steady, falling = findings["probe-clear"], findings["probe-full-replay"]
    # The baseline itself gains a third: only the difference to it says anything about replay.
    assert steady.verdict == "holds" and falling.verdict == "holds"
    assert falling.effect is not None and falling.effect.value == pytest.approx(-5 / 7.7 - 4 / 12.2, abs=0.01)
    assert steady.arms[:3] == ("clear (probe at 0)", "clear (probe at 1)", "clear (probe at 2)")
    assert steady.arms[3:] == ("sequential (probe at 0)", "sequential (probe at 1)", "sequential (probe at 2)")


def test_the_probe_needs_the_baseline_at_the_same_positions(make_run):
    _probes(make_run, "clear", 0.0)
    assert _findings(make_run)["probe-clear"].why.startswith("no runs of Baseline (sequential) with the probe")
    _probes(make_run, "sequential", 0.0, positions=(0, 3))
    assert _findings(make_run)["probe-clear"].why == "the probes of the two arms share fewer than two positions"


def test_plasticity_leaves_out_the_first_task_which_has_nothing_older_to_replay(make_run):
    for seed in range(3):
        make_run("clear", seed, returns=lambda task, share: 10.0 if share > 0 else 0.0)
        make_run(
            "clear-100-replay", seed, returns=lambda task, share: {"a": 10.0, "b": 6.0}[task] if share > 0 else 0.0
        )
    effect = _findings(make_run)["full-replay-plasticity"].effect
    assert effect is not None and effect.value == pytest.approx(0.6)


def test_what_is_missing_is_said(make_run):
    findings = _findings_of(make_run, {"clear": 4, "simultaneous": 5})
    assert findings["clear-simultaneous"].verdict == "undecided"
    assert findings["clear-simultaneous"].why == "4 finished seeds; a verdict needs 5"
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


def test_scores_below_zero_are_counted_from_the_untrained_return(make_run):
    for seed in range(3):
        make_run("clear", seed, returns=lambda task, share: -21 + 20 * min(1.0, 1000 * share))
        make_run("simultaneous", seed, returns=lambda task, share: -21 + 40 * min(1.0, 1000 * share))
    effect = _findings(make_run)["clear-simultaneous"].effect
    assert effect is not None and effect.value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "verdict", "is_sure"),
    [(1.0, "holds", True), (0.88, "holds", False), (0.8, "does not hold", False), (0.6, "does not hold", True),
     (1.4, "does not hold", True)],
)  # fmt: skip
def test_the_verdict_is_where_the_interval_lies(value, verdict, is_sure):
    effect = Interval(value, value - 0.1, value + 0.1, error=0.1 / 1.96, degrees=1e9)
    found, p_value = leaning(effect, (0.85, 1.15))
    assert found == verdict and (p_value <= 0.05) is is_sure


def test_a_claim_that_holds_alone_may_not_hold_among_many(make_run):
    """Eight claims close to their edge: each by itself is inside its 95 % interval, together they are not."""
    rng = np.random.default_rng(3)
    for arm in ("simultaneous", "clear", "sequential", "clear-75-25", "clear-100-replay", "clear-buffer-1/18"):
        for seed in range(5):
            make_run(arm, seed, returns=_level(10 + 0.55 * rng.standard_normal(), 0))
    findings = [finding for finding in _findings(make_run).values() if finding.p_value is not None]
    single = [leaning(finding.effect, finding.claim.range)[1] for finding in findings if finding.effect]
    assert all((finding.p_value or 0) >= own for finding, own in zip(findings, single, strict=True))
    blocked = [finding for finding, own in zip(findings, single, strict=True) if own <= 0.05 < (finding.p_value or 0)]
    assert blocked and all(finding.verdict == "undecided" for finding in blocked)
    assert all(f"once corrected for {len(findings)} claims" in finding.why for finding in blocked)


def test_opposite_effects_on_two_tasks_are_told_apart(make_run):
    for seed in range(5):
        make_run("simultaneous", seed, returns=_level(10.0, seed))
        ours = {"a": 12.3 * (1 + 0.01 * seed), "b": 3.2 * (1 + 0.01 * seed)}
        make_run("clear", seed, returns=lambda task, share, ours=ours: ours[task] if share > 0 else 0.0)
    finding = _findings(make_run)["clear-simultaneous"]
    assert {task: one.verdict for task, one in finding.tasks.items()} == {"a": "holds", "b": "does not hold"}
    assert finding.tasks["b"].effect.value == pytest.approx(0.32)
    assert finding.to_json()["tasks"]["b"]["verdict"] == "does not hold"


def test_a_rival_below_the_baseline_decides_nothing(make_run):
    for seed in range(5):
        for arm, level in (("sequential", 5.0), ("clear-75-25", 9.0), ("ewc", 4.5), ("progress-compress", 6.0)):
            make_run(arm, seed, returns=_level(level, seed))
    findings = _findings(make_run)
    assert findings["clear-ewc"].verdict == "rival not tuned" == findings["progress-compress-ewc"].verdict
    assert findings["clear-ewc"].why == "EWC has 0.90 of the baseline's score: it must not be below it"
    assert findings["clear-progress-compress"].verdict == "holds"
    assert findings["clear-progress-compress"].sanity == {"progress-compress": pytest.approx(1.2)}


def test_without_a_baseline_nothing_says_that_a_rival_was_tuned(make_run):
    for seed in range(5):
        for arm, level in (("clear-75-25", 9.0), ("ewc", 4.5)):
            make_run(arm, seed, returns=_level(level, seed))
    finding = _findings(make_run)["clear-ewc"]
    assert finding.verdict == "undecided" and "the baseline was not run" in finding.why


def test_the_oracle_stands_beside_the_ratio_to_simultaneous(make_run):
    # Both tasks rise linearly with their own frames; the schedule gives b none of them in the first half.
    for seed in range(5):
        make_run("simultaneous", seed, protocol="simultaneous", cycles=1, returns=lambda task, share: 10 * share)
        make_run("clear", seed, cycles=1, returns=_level(4.0, seed))
    finding = _findings(make_run)["clear-simultaneous"]
    # Simultaneous: mean 5. a: rises to 10 in the first half, then stays: 7.5. b: 0, then rises to 10: 2.5.
    assert finding.oracle == pytest.approx((7.5 / 5 + 2.5 / 5) / 2, abs=0.01)
    assert _findings(make_run)["sequential-forgets"].oracle is None


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
