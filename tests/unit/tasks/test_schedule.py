"""The cursor: every worker switches at the same frame, and the visits add up."""

from __future__ import annotations

from collections import Counter

import pytest

from clearl.tasks.plan import Plan, Segment, single
from clearl.tasks.schedule import PlanCursor


def granted(cursor: PlanCursor, frames: int) -> list[int]:
    segments = []
    while (grant := cursor.grant(frames)) is not None:
        segments.append(grant.segment)
    return segments


def test_visits_get_their_frames() -> None:
    plan = Plan("p", (single("a", frames=100), single("b", frames=60)), ("a", "b"))
    assert granted(PlanCursor(plan, 2), 20) == [0] * 5 + [1] * 3


def test_boundaries_are_absolute_so_that_overshoot_does_not_add_up() -> None:
    plan = Plan("p", tuple(single("a", frames=50) for _ in range(6)), ("a",))
    counts = Counter(granted(PlanCursor(plan, 2), 40))
    assert sum(counts.values()) * 40 == 320
    assert [counts[i] for i in range(6)] == [2, 1, 1, 1, 2, 1]


def test_a_segment_that_ends_by_episodes_ends_when_they_are_over() -> None:
    plan = Plan("p", (single("a", episodes=3), single("b", episodes=1)), ("a", "b"))
    cursor = PlanCursor(plan, 2)
    for _ in range(4):
        grant = cursor.grant(10)
        assert grant is not None and grant.segment == 0
    cursor.count_episodes(0, 3)
    grant = cursor.grant(10)
    assert grant is not None and grant.tasks == ("b", "b")
    cursor.count_episodes(0, 5)  # late news of the old task end nothing
    assert cursor.grant(10) is not None
    cursor.count_episodes(1, 1)
    assert cursor.grant(10) is None


def test_the_visit_of_a_frame() -> None:
    plan = Plan("p", (single("a", frames=100), single("b", frames=60)), ("a", "b"))
    cursor = PlanCursor(plan, 2)
    assert [(v.index, v.tasks, v.start_frames, v.end_frames) for v in map(cursor.visit, (0, 99, 100, 160))] == [
        (0, ("a",), 0, 100),
        (0, ("a",), 0, 100),
        (1, ("b",), 100, 160),
        (1, ("b",), 100, 160),
    ]


@pytest.mark.parametrize("slots", [1, 4, 10, 32, 33])
def test_a_mixture_gives_every_task_its_share_of_the_slots_over_time(slots: int) -> None:
    plan = Plan("p", (Segment(("a", "b", "c"), (1 / 3, 1 / 3, 1 / 3), frames=slots * 30),), ("a",))
    cursor, counts = PlanCursor(plan, slots), Counter()
    while (grant := cursor.grant(slots)) is not None:
        counts.update(grant.tasks)
    assert counts == {"a": slots * 10, "b": slots * 10, "c": slots * 10}


def test_a_cursor_goes_on_where_its_state_was_taken() -> None:
    plan = Plan("p", (single("a", frames=100), single("b", frames=60)), ("a", "b"))
    one, two = PlanCursor(plan, 2), PlanCursor(plan, 2)
    for _ in range(3):
        one.grant(20)
    two.restore(one.state())
    assert granted(one, 20) == granted(two, 20) == [0] * 2 + [1] * 3


def test_what_is_taken_back_is_granted_again_in_the_segment_it_belongs_to() -> None:
    plan = Plan("p", (single("a", frames=40), single("b", frames=20), single("c", frames=30)), ("a", "b", "c"))
    whole = granted(PlanCursor(plan, 2), 10)
    assert whole == [0, 0, 0, 0, 1, 1, 2, 2, 2]
    for count in range(1, 10):
        cursor = PlanCursor(plan, 2)
        for _ in range(count):
            cursor.grant(10)
        cursor.take_back(10)
        assert granted(cursor, 10) == whole[count - 1 :]
    over = PlanCursor(plan, 2)
    assert granted(over, 10) == whole
    over.take_back(10)
    assert not over.finished and granted(over, 10) == [2]
