"""What a schedule costs by itself, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clearl.report.load import load_run, load_runs
from clearl.report.oracle import learning_curve, oracle, own_frames, regret
from clearl.report.run import Curve, Span


def test_own_frames_follow_the_schedule(make_run):
    run = load_run(make_run("clear", cycles=2, visit_frames=100))
    at = np.array([0.0, 50.0, 150.0, 250.0, 400.0])
    assert own_frames(run, "a", at).tolist() == [0, 50, 100, 150, 200]
    assert own_frames(run, "b", at).tolist() == [0, 0, 50, 100, 200]


def test_own_frames_of_tasks_trained_at_once_are_their_shares(make_run):
    run = load_run(make_run("simultaneous", protocol="simultaneous", cycles=2, visit_frames=100))
    assert own_frames(run, "a", np.array([400.0])).tolist() == [200]
    (separate,) = load_runs([make_run.separate("separate", 0, visit_frames=100)])
    assert own_frames(separate, "a", np.array([400.0])).tolist() == [200]


def test_a_moving_mixture_counts_by_its_mean():
    span = Span(("a", "b"), 0.0, 100.0, 0, (3.0, 1.0), (1.0, 3.0))
    assert span.share("a") == 0.5 and span.share("c") == 0.0
    assert Span(("a", "b"), 0.0, 100.0, 0, (3.0, 1.0)).share("a") == 0.75


def test_the_oracle_of_a_linear_learner(make_run):
    runs = [
        load_run(make_run("simultaneous", protocol="simultaneous", cycles=1, returns=lambda task, share: 8 * share))
    ]
    learnt = learning_curve(runs, "a")
    assert learnt is not None and learnt.at(np.array([0.0, 500.0, 1000.0])).tolist() == [0.0, 4.0, 8.0]
    run = load_run(make_run("clear", cycles=1, returns=lambda task, share: 1.0))
    assert oracle(run, "a", learnt) == pytest.approx(6.0) and oracle(run, "b", learnt) == pytest.approx(2.0)
    assert learning_curve([], "a") is None and oracle(run, "absent", learnt) is None


def test_a_run_that_forgets_nothing_has_no_regret(make_run):
    (alone,) = load_runs([make_run.separate("separate", 0, cycles=1, returns=lambda task, share: 8 * share)])
    learnt = learning_curve([alone], "a")
    kept = load_run(make_run("clear", cycles=1, returns=lambda task, share: 8 * min(1.0, 2 * share)))
    assert regret(kept, "a", learnt) == pytest.approx(0.0, abs=1e-6)
    lost = load_run(make_run("sequential", cycles=1, returns=lambda task, share: 0.0))
    assert regret(lost, "a", learnt) == pytest.approx(6.0)
    assert regret(lost, "a", None) is None


def test_the_learning_curve_is_the_mean_over_seeds(make_run):
    runs = [
        load_run(make_run("x", seed, protocol="simultaneous", returns=lambda task, share, top=top: top * share))
        for seed, top in ((0, 4.0), (1, 8.0))
    ]
    learnt = learning_curve(runs, "a")
    assert isinstance(learnt, Curve) and learnt.returns[-1] == pytest.approx(6.0)
