"""A plan without an end that has a past: only what comes after it is repeated, on one axis of frames."""

from __future__ import annotations

from itertools import accumulate, islice
from itertools import cycle as repeat

import pytest

from clearl.tasks.plan import Plan, plan_from_json, planned_end, single
from clearl.tasks.schedule import PlanCursor

LENGTHS = (100, 50, 30, 20)


@pytest.mark.parametrize("past", [0, 1, 3])
def test_only_what_comes_after_the_past_is_repeated(past: int) -> None:
    segments = tuple(single(name, frames=frames) for name, frames in zip("abcd", LENGTHS, strict=True))
    plan = Plan("sequential", segments, tuple("abcd"), forever=True, past_segments=past)
    order = [*segments[:past], *islice(repeat(segments[past:]), 20)]
    ends = list(accumulate(segment.frames or 0 for segment in order))
    assert [plan.segment(index) for index in range(len(order))] == order
    assert [planned_end(plan, index) for index in range(len(order))] == ends
    cursor = PlanCursor(plan, 4)
    for frames in range(0, ends[-1], 10):
        index = next(number for number, end in enumerate(ends) if frames < end)
        visit = cursor.visit(frames)
        assert (visit.index, visit.tasks) == (index, order[index].tasks)
        assert (visit.start_frames, visit.end_frames) == (ends[index] - (order[index].frames or 0), ends[index])
        granted = cursor.grant(10)
        assert granted is not None and granted.segment == index


def test_a_plan_of_version_0_1_has_no_past() -> None:
    content = {"name": "sequential", "segments": [{"tasks": ["a"], "weights": [1.0], "frames": 5}], "evaluate": ["a"]}
    assert plan_from_json(content).past_segments == 0
