"""The share of replay is exact over time, and the picks follow from the seed and the counters."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearl.errors import ConfigError
from clearl.replay.mixing import BothMixer, EitherMixer, Mixer, Part


def replayed(mixer: Mixer, has_replay: np.ndarray) -> np.ndarray:
    """[n] int: how many replayed unrolls each pair of one batch gives."""
    picks = mixer.choose(has_replay, [Part(np.arange(len(has_replay)), 10**9)])
    assert (picks.new == (picks.replayed == 0 if isinstance(mixer, EitherMixer) else True)).all()
    return picks.replayed


def exact(share: float, pairs: int) -> Fraction:
    return Fraction(share).limit_denominator(1_000_000) * pairs


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 1 / 3, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("pairs", [1, 7, 32])
def test_either_gives_the_exact_share_after_every_batch(fraction: float, pairs: int) -> None:
    mixer, picked = EitherMixer(fraction, seed=1), 0
    for batch in range(1, 200):
        picked += int(replayed(mixer, np.ones(pairs, bool)).sum())
        assert abs(picked - exact(fraction, pairs * batch)) < 1
    assert picked == int(exact(fraction, pairs * 199))


@settings(max_examples=200, deadline=None)
@given(st.floats(0.25, 4), st.integers(1, 20), st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_both_gives_every_batch_the_ratio_however_its_pairs_come(ratio: float, size: int, sent: list[int]) -> None:
    mixer, counts, start = BothMixer(ratio, seed=1), np.zeros(0, int), 0
    for count in sent:
        batch = np.arange(start, start + count) // size
        parts = [Part(np.flatnonzero(batch == number), mixer.most_on_top(size)) for number in np.unique(batch)]
        picks = mixer.choose(np.ones(count, bool), parts)
        assert picks.new.all() and picks.replayed.max() <= mixer.draws == ceil(mixer.ratio)
        for part in parts:
            assert np.ptp(picks.replayed[part.indices]) <= 1  # no pair gives two more than another
        counts, start = np.concatenate([counts, picks.replayed]), start + count
    assert counts.sum() == floor(exact(ratio, start))
    for whole in counts[: start // size * size].reshape(-1, size):
        assert floor(exact(ratio, size)) <= whole.sum() <= ceil(exact(ratio, size))


def test_nothing_to_replay_means_new_and_is_not_made_up_for() -> None:
    mixer = EitherMixer(0.5, seed=1)
    assert not replayed(mixer, np.zeros(8, bool)).any()
    has_replay = np.array([True, False, True, False, False, False, False, False])
    assert (replayed(mixer, has_replay) == has_replay).all()
    assert [int(replayed(mixer, np.ones(8, bool)).sum()) for _ in range(4)] == [4, 4, 4, 4]


def test_on_top_nothing_is_made_up_for_either() -> None:
    mixer = BothMixer(2.5, seed=1)
    assert not replayed(mixer, np.zeros(8, bool)).any()
    has_replay = np.array([True, False, True, False, False, False, False, False])
    assert (replayed(mixer, has_replay) == 3 * has_replay).all()  # three draws a slot, and no more
    assert [int(replayed(mixer, np.ones(8, bool)).sum()) for _ in range(4)] == [20, 20, 20, 20]


def test_what_a_batch_has_no_room_for_stays_due() -> None:
    mixer = BothMixer(0.5, seed=1)
    picks = mixer.choose(np.ones(8, bool), [Part(np.arange(4), 1), Part(np.arange(4, 8), 9)])
    assert picks.replayed[:4].sum() == 1 and picks.replayed[4:].sum() == 3
    assert mixer.state() == {"batches": 2, "pairs": 8, "replayed": 4, "excused": 0}


def test_the_share_holds_among_those_that_can() -> None:
    chosen = replayed(EitherMixer(0.25, seed=3), np.arange(16) < 5)
    assert chosen.sum() == 4 and not chosen[5:].any()


@pytest.mark.parametrize(("mixer", "mean"), [(EitherMixer(0.25, seed=4), 0.25), (BothMixer(1.25, seed=4), 1.25)])
def test_every_pair_is_picked_equally_often(mixer: Mixer, mean: float) -> None:
    counts = np.zeros(16)
    for _ in range(4000):
        counts += replayed(mixer, np.ones(16, bool))
    assert counts.sum() == 4000 * 16 * mean
    # Variance of one count: 4000 * 1/4 * 3/4; five standard deviations.
    assert np.abs(counts - 4000 * mean).max() < 5 * np.sqrt(750)


@pytest.mark.parametrize("make", [lambda seed: EitherMixer(0.3, seed), lambda seed: BothMixer(0.7, seed)])
def test_state_goes_on_with_the_same_picks_and_the_seed_matters(make: Callable[[int], Mixer]) -> None:
    one, rng = make(5), np.random.default_rng(0)
    for _ in range(10):
        replayed(one, rng.random(9) < 0.7)
    two, other = make(5), make(6)
    two.restore(one.state())
    other.restore(one.state())
    same, different = [], []
    for _ in range(20):
        has_replay = rng.random(9) < 0.7
        expected = replayed(one, has_replay)
        same.append((replayed(two, has_replay) == expected).all())
        different.append((replayed(other, has_replay) == expected).all())
    assert all(same) and not all(different)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match="replay_fraction must be from 0 to 1"):
        EitherMixer(fraction, seed=0)


@pytest.mark.parametrize("ratio", [0.0, 0.2, 4.1, float("nan")])
def test_a_ratio_out_of_range_is_refused(ratio: float) -> None:
    with pytest.raises(ConfigError, match=r"replay_ratio must be from 0\.25 to 4"):
        BothMixer(ratio, seed=0)
