"""Means, deviations and intervals over seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import trim_mean

from clearl.report.stats import Stat, iqm, over_seeds


def test_mean_and_sample_deviation_leave_out_what_is_missing():
    stat = Stat((1.0, None, 3.0))
    assert stat.to_json() == {"mean": 2.0, "std": pytest.approx(2**0.5), "per_seed": [1.0, None, 3.0]}
    assert Stat((1.0,)).std is None and Stat((None,)).mean is None


def test_iqm_is_the_trimmed_mean_of_all_scores_with_an_interval_around_it():
    scores = np.random.default_rng(0).normal(1.0, 0.2, size=(5, 4))
    result = iqm(scores)
    assert result is not None and result.low is not None and result.high is not None
    assert result.value == pytest.approx(trim_mean(scores.ravel(), 0.25))
    assert result.low < result.value < result.high
    assert iqm(scores) == result  # seeded


def test_the_bootstrap_is_stratified_by_task():
    # Tasks of very different level but no spread over seeds: nothing changes when seeds are drawn within a task.
    scores = np.repeat(np.array([[0.0, 1.0, 5.0, 9.0]]), 5, axis=0)
    result = iqm(scores)
    assert result is not None and result.low == result.high == result.value == 3.0


def test_fewer_than_three_seeds_have_no_interval():
    assert iqm(np.ones((2, 3))) is None
    result = over_seeds([np.ones(2), np.ones(5)], lambda a, b: float(a.mean() - b.mean()))
    assert result is not None and (result.value, result.low, result.high) == (0.0, None, None)


def test_the_interval_of_a_difference_covers_it_and_widens_with_noise():
    rng = np.random.default_rng(1)

    def width(noise: float) -> float:
        a, b = 2.0 + noise * rng.standard_normal((20, 2)), noise * rng.standard_normal((20, 2))
        result = over_seeds([a, b], lambda x, y: float(x.mean() - y.mean()))
        assert result is not None and result.low is not None and result.high is not None
        assert result.low < 2.0 < result.high
        return result.high - result.low

    assert width(1.0) > 3 * width(0.1)


def test_seeds_are_drawn_whole():
    # Both columns of a seed move together, so their difference has no spread.
    sample = np.array([[1.0, 0.0], [5.0, 4.0], [9.0, 8.0]])
    result = over_seeds([sample], lambda x: float(x[:, 0].mean() - x[:, 1].mean()))
    assert result is not None and (result.low, result.high) == pytest.approx((1.0, 1.0))


def test_an_effect_that_is_not_finite_has_no_interval():
    assert over_seeds([np.zeros(3)], lambda x: float("nan")) is None
    fragile = over_seeds([np.array([1.0, 2.0, 3.0])], lambda x: float("nan") if x.min() > 1 else 1.0)
    assert fragile is not None and fragile.value == 1.0 and fragile.low is None
