"""The law of the reservoir: kept == the top C by number, at every moment, however it got there."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clearl.replay.reservoir import Reservoir
from clearl.seeding import unroll_numbers


def grown(stream: int, capacity: int, count: int) -> Reservoir:
    reservoir = Reservoir(stream, capacity)
    for _ in range(count):
        reservoir.commit(*reservoir.place())
    return reservoir


def top(stream: int, capacity: int, count: int) -> set[int]:
    numbers = unroll_numbers(stream, np.arange(count))
    return set(np.argsort(numbers)[::-1][:capacity].tolist())


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**63 - 1), st.integers(1, 200), st.integers(0, 1500))
def test_kept_is_the_top_c_by_number(stream, capacity, count):
    reservoir = grown(stream, capacity, count)
    assert set(reservoir.sequences.tolist()) == top(stream, capacity, count)
    assert reservoir.numbers.tolist() == unroll_numbers(stream, reservoir.sequences).tolist()
    assert reservoir.threshold == (int(reservoir.numbers.min()) if count >= capacity else 0)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**63 - 1), st.integers(1, 300), st.lists(st.integers(0, 900), min_size=1, max_size=4), st.booleans()
)
def test_advancing_in_any_steps_gives_the_same_positions(stream, capacity, steps, one_by_one_first):
    lived = grown(stream, capacity, sum(steps))
    jumped = grown(stream, capacity, steps[0]) if one_by_one_first else Reservoir(stream, capacity)
    for target in np.cumsum(steps).tolist():
        jumped.advance(target)
    assert jumped.sequences.tolist() == lived.sequences.tolist()
    assert jumped.numbers.tolist() == lived.numbers.tolist()
    for _ in range(50):
        assert jumped.place() == lived.place()
        jumped.commit(*jumped.place())
        lived.commit(*lived.place())
    assert jumped.sequences.tolist() == lived.sequences.tolist()


def above(stream: int, count: int, number: int) -> set[int]:
    return set(np.flatnonzero(unroll_numbers(stream, np.arange(count)) > np.uint64(number)).tolist())


CHANGES = st.lists(st.tuples(st.integers(1, 120), st.integers(0, 400)), min_size=1, max_size=4)


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**63 - 1), CHANGES, st.booleans())
def test_with_changing_capacities_kept_is_always_everything_above_one_number(stream, changes, jump):
    """Hence a uniform sample of the whole past; and never fewer than the smallest capacity would have kept."""
    reservoir, smallest = Reservoir(stream, changes[0][0]), changes[0][0]
    for capacity, more in changes:
        reservoir.resize(capacity)
        smallest = min(smallest, capacity)
        until = reservoir.next_sequence + more
        if jump:
            reservoir.advance(until)
        while reservoir.next_sequence < until:
            reservoir.commit(*reservoir.place())
        kept = set(reservoir.sequences.tolist())
        assert len(kept) == reservoir.held <= capacity
        assert reservoir.numbers.tolist() == unroll_numbers(stream, reservoir.sequences).tolist()
        assert top(stream, smallest, until) <= kept
        lowest = int(reservoir.numbers.min()) - 1 if kept else 0
        assert kept == above(stream, until, max(lowest, 0)) or not kept
        assert kept == top(stream, len(kept), until)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**63 - 1), CHANGES)
def test_a_jump_through_capacities_ends_where_single_steps_do(stream, changes):
    lived, jumped = Reservoir(stream, changes[0][0]), Reservoir(stream, changes[0][0])
    for capacity, more in changes:
        for reservoir in (lived, jumped):
            reservoir.resize(capacity)
        for _ in range(more):
            lived.commit(*lived.place())
        jumped.advance(lived.next_sequence)
        assert jumped.sequences.tolist() == lived.sequences.tolist()
        assert jumped.threshold == lived.threshold


def test_the_same_capacity_again_changes_nothing():
    one, two = Reservoir(3, 20), Reservoir(3, 20)
    one.advance(100)
    two.advance(50)
    two.resize(20)
    two.advance(100)
    assert set(one.sequences.tolist()) == set(two.sequences.tolist())
