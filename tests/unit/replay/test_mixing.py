"""The share of replay is exact over time, and the picks follow from the seed and the counters."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from clearl.errors import ConfigError
from clearl.replay.mixing import Mixer


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 1 / 3, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("pairs", [1, 7, 32])
def test_the_share_is_exact_after_every_batch(fraction, pairs):
    mixer, picked = Mixer(fraction, seed=1), 0
    for batch in range(1, 200):
        picked += int(mixer.choose(np.ones(pairs, bool)).sum())
        exact = Fraction(fraction).limit_denominator(1_000_000) * pairs * batch
        assert abs(picked - exact) < 1
    assert picked == int(exact)


def test_nothing_to_replay_means_new_and_is_not_made_up_for():
    mixer = Mixer(0.5, seed=1)
    assert not mixer.choose(np.zeros(8, bool)).any()
    has_replay = np.array([True, False, True, False, False, False, False, False])
    assert (mixer.choose(has_replay) == has_replay).all()
    assert [int(mixer.choose(np.ones(8, bool)).sum()) for _ in range(4)] == [4, 4, 4, 4]


def test_the_share_holds_among_those_that_can():
    chosen = Mixer(0.25, seed=3).choose(np.arange(16) < 5)
    assert chosen.sum() == 4 and not chosen[5:].any()


def test_every_pair_is_picked_equally_often():
    mixer, counts = Mixer(0.25, seed=4), np.zeros(16)
    for _ in range(4000):
        counts += mixer.choose(np.ones(16, bool))
    assert counts.sum() == 16_000
    # Variance of one count: 4000 * 1/4 * 3/4; five standard deviations.
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(750)


def test_state_goes_on_with_the_same_picks_and_the_seed_matters():
    one, rng = Mixer(0.3, seed=5), np.random.default_rng(0)
    for _ in range(10):
        one.choose(rng.random(9) < 0.7)
    two, other = Mixer(0.3, seed=5), Mixer(0.3, seed=6)
    two.restore(one.state())
    other.restore(one.state())
    same, different = [], []
    for _ in range(20):
        has_replay = rng.random(9) < 0.7
        expected = one.choose(has_replay)
        same.append((two.choose(has_replay) == expected).all())
        different.append((other.choose(has_replay) == expected).all())
    assert all(same) and not all(different)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(ConfigError, match="replay_fraction must be from 0 to 1"):
        Mixer(fraction, seed=0)
