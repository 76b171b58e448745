"""Means, deviations, intervals that cover what they say, and the correction for many claims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import false_discovery_control, t, trim_mean, ttest_1samp, ttest_ind

from clearl.report.effects import mean, ratio
from clearl.report.stats import Interval, Stat, holm, iqm, mean_interval, over_seeds


def test_mean_and_sample_deviation_leave_out_what_is_missing():
    stat = Stat((1.0, None, 3.0))
    assert stat.to_json() == {"mean": 2.0, "std": pytest.approx(2**0.5), "per_seed": [1.0, None, 3.0]}
    assert Stat((1.0,)).std is None and Stat((None,)).mean is None


def test_the_interval_of_a_mean_is_students():
    sample = np.array([1.0, 4.0, 2.0, 8.0])
    result = mean_interval(sample)
    expected = ttest_1samp(sample, 0.0).confidence_interval()
    assert result is not None and (result.low, result.high) == pytest.approx((expected.low, expected.high))


def test_the_interval_of_a_difference_is_welchs():
    first, second = np.array([1.0, 4.0, 2.0, 8.0]), np.array([3.0, 3.5, 3.1])
    result = over_seeds([first, second], lambda x, y: float(x.mean() - y.mean()))
    expected: Any = ttest_ind(first, second, equal_var=False)
    assert result is not None and (result.low, result.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert 2 * min(result.p_above(0.0), result.p_below(0.0)) == pytest.approx(expected.pvalue)


def test_the_interval_of_a_ratio_is_made_on_the_log_scale():
    result = over_seeds([np.array([[2.0], [3.0], [4.0]]), np.array([[1.0], [1.1], [0.9]])], ratio, is_log=True)
    assert result is not None and result.low is not None and result.high is not None
    assert result.value == pytest.approx(3.0) and result.low * result.high == pytest.approx(9.0)
    assert result.p_below(0.0) == 1.0 and result.p_above(0.0) == 0.0


_EFFECTS = {
    "mean": (lambda rng, n: [rng.normal(1.0, 0.3, (n, 2))], mean, 1.0, False),
    "ratio": (lambda rng, n: [rng.normal(1.2, 0.3, (n, 2)), rng.normal(1.0, 0.2, (n, 2))], ratio, 1.2, True),
    "skewed ratio": (
        lambda rng, n: [rng.lognormal(0, 0.4, (n, 2)), rng.lognormal(0, 0.4, (n, 2))], ratio, 1.0, True
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _EFFECTS)
@pytest.mark.parametrize("seeds", [3, 4, 5, 7, 10])
def test_the_intervals_cover_what_they_say(name, seeds):
    """Nominally 95 %. The percentile bootstrap covers 75 to 80 % at 3 seeds: far below this bound."""
    draw, effect, truth, is_log = _EFFECTS[name]
    rng = np.random.default_rng(seeds)
    covered, trials = 0, 600
    for _ in range(trials):
        result = over_seeds(draw(rng, seeds), effect, is_log=is_log)
        covered += result is not None and result.low is not None and result.low <= truth <= (result.high or 0.0)
    assert covered / trials >= 0.92


def test_iqm_is_the_trimmed_mean_of_all_scores_with_an_interval_around_it():
    scores = np.random.default_rng(0).normal(1.0, 0.2, size=(5, 4))
    result = iqm(scores)
    assert result is not None and result.low is not None and result.high is not None
    assert result.value == pytest.approx(trim_mean(scores.ravel(), 0.25))
    assert result.low < result.value < result.high


@pytest.mark.parametrize(("seeds", "tasks"), [(3, 2), (5, 2), (5, 4), (10, 3)])
def test_the_interval_of_the_iqm_covers_what_it_says(seeds, tasks):
    rng = np.random.default_rng(1)
    trials = 400
    found = [iqm(rng.normal(1.0, 0.3, (seeds, tasks))) for _ in range(trials)]
    covered = sum(one is not None and (one.low or 0) <= 1.0 <= (one.high or 0) for one in found)
    assert covered / trials >= (0.88 if seeds * tasks < 8 else 0.92)  # six values are trimmed to four


def test_fewer_than_three_seeds_have_no_interval():
    assert iqm(np.ones((2, 3))) is None
    result = over_seeds([np.ones(2), np.ones(5)], lambda a, b: float(a.mean() - b.mean()))
    assert result is not None and (result.value, result.low, result.high) == (0.0, None, None)


def test_seeds_are_left_out_whole():
    # Both columns of a seed move together, so their difference has no spread.
    sample = np.array([[1.0, 0.0], [5.0, 4.0], [9.0, 8.0]])
    result = over_seeds([sample], lambda x: float(x[:, 0].mean() - x[:, 1].mean()))
    assert result is not None and (result.low, result.high) == pytest.approx((1.0, 1.0))
    assert result.p_above(0.9) == 0.0 and result.p_above(1.1) == 1.0


def test_an_effect_that_is_not_finite_has_no_interval():
    assert over_seeds([np.zeros(3)], lambda x: float("nan")) is None
    fragile = over_seeds([np.array([1.0, 2.0, 3.0])], lambda x: float("nan") if x.min() > 1 else 1.0)
    assert fragile is not None and fragile.value == 1.0 and fragile.low is None
    crossing = over_seeds([np.array([0.1, 0.1, -5.0, 5.5])], lambda x: float(x.mean()), is_log=True)
    assert crossing is not None and crossing.low is None


def test_p_values_agree_with_the_interval():
    reach = 0.1 * float(t.ppf(0.975, 4))
    effect = Interval(1.0, 1.0 - reach, 1.0 + reach, error=0.1, degrees=4)
    assert effect.p_above(1.0 - reach) == pytest.approx(0.025) == effect.p_below(1.0 + reach)


def test_holms_correction():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.5]) == [1.0, 1.0] and holm([]) == []
    # Never kinder than Benjamini and Hochberg's, which controls less.
    p_values = np.random.default_rng(0).uniform(size=8) ** 3
    assert (np.array(holm(p_values.tolist())) >= false_discovery_control(p_values) - 1e-12).all()
