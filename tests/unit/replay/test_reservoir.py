"""Uniform over all of the past, at a cost that does not grow, from an index that stays small."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from clearl.errors import ConfigError
from clearl.replay.reservoir import Reservoir
from clearl.seeding import derive, unroll_numbers


def test_every_moment_of_the_past_is_kept_equally_often():
    capacity, total, slots, bins = 50, 1000, 400, 20
    counts = np.zeros(bins)
    for slot in range(slots):
        reservoir = Reservoir(derive(11, "reservoir", slot), capacity)
        reservoir.advance(total)
        counts += np.histogram(reservoir.sequences, bins=bins, range=(0, total))[0]
    assert counts.sum() == capacity * slots
    # Kept unrolls of one slot are drawn without replacement, which makes the counts a little more even than chi-square.
    assert stats.chisquare(counts).pvalue > 1e-3
    assert counts.std() > 0.5 * np.sqrt(counts.mean())


def test_a_million_unrolls_are_rebuilt_in_seconds_and_are_the_top():
    capacity, total = 500_000, 1_200_000
    reservoir = Reservoir(5, capacity)
    start = time.process_time()
    reservoir.advance(total)
    assert time.process_time() - start < 5
    numbers = unroll_numbers(5, np.arange(total))
    assert (np.sort(reservoir.numbers) == np.sort(numbers)[-capacity:]).all()
    assert (unroll_numbers(5, reservoir.sequences) == reservoir.numbers).all()


def test_the_index_takes_less_than_20_bytes_an_unroll_even_while_it_is_rebuilt():
    capacity = 400_000
    tracemalloc.start()
    try:
        reservoir = Reservoir(6, capacity)
        reservoir.advance(2 * capacity)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 20 * capacity and reservoir.nbytes < 20 * capacity
    assert peak < 20 * capacity + 20_000_000  # blocks of a fixed size come on top


def test_a_large_capacity_costs_nothing_before_it_is_used():
    reservoir = Reservoir(7, 10**15)
    reservoir.commit(*reservoir.place())
    assert reservoir.nbytes < 100_000


def test_place_changes_nothing():
    reservoir = Reservoir(8, 3)
    reservoir.advance(20)
    before = reservoir.sequences.tolist()
    assert reservoir.place() == reservoir.place()
    assert reservoir.sequences.tolist() == before and reservoir.next_sequence == 20


def test_no_room_is_refused():
    with pytest.raises(ConfigError, match="at least one unroll"):
        Reservoir(1, 0)
