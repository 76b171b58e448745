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
