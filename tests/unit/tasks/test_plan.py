from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearl.errors import ConfigError
from clearl.tasks.plan import Plan, Segment, assign_tasks, lengthened, single
from clearl.tasks.schedule import PlanCursor


def test_a_segment_ends_by_frames_or_by_episodes_not_by_both() -> None:
    with pytest.raises(ConfigError, match="either by frames or by episodes"):
        single("a", frames=1, episodes=1)
    with pytest.raises(ConfigError, match="either by frames or by episodes"):
        single("a")
    with pytest.raises(ConfigError, match="at least one"):
        single("a", frames=0)


@pytest.mark.parametrize("weights", [(0.5, 0.6), (1.5, -0.5), (1.0,)])
def test_weights_must_be_a_mixture(weights: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="weights"):
        Segment(("a", "b"), weights, frames=10)


def test_a_moving_mixture_passes_through_the_middle() -> None:
    segment = Segment(("a", "b"), (1.0, 0.0), frames=10, end_weights=(0.0, 1.0))
    assert segment.weights_at(0.25) == (0.75, 0.25)
    assert Counter(assign_tasks(segment, 8, 0.25)) == {"a": 6, "b": 2}
    with pytest.raises(ConfigError, match="frames"):
        Segment(("a", "b"), (1.0, 0.0), episodes=10, end_weights=(0.0, 1.0))


def test_total_frames_is_unknown_when_a_visit_ends_by_episodes() -> None:
    assert Plan("p", (single("a", frames=3), single("b", frames=4)), ("a", "b")).total_frames == 7
    assert Plan("p", (single("a", frames=3), single("b", episodes=4)), ("a", "b")).total_frames is None


def test_one_task_takes_every_slot_all_the_time() -> None:
    assert {task for share in (0.0, 0.5, 1.0) for task in assign_tasks(single("a", frames=9), 5, share)} == {"a"}


@given(num_tasks=st.integers(1, 7), num_slots=st.integers(1, 40))
def test_an_equal_mixture_gives_every_task_its_exact_share(num_tasks: int, num_slots: int) -> None:
    tasks = tuple(f"t{i}" for i in range(num_tasks))
    segment = Segment(tasks, (1 / num_tasks,) * num_tasks, frames=1000)
    turns = [assign_tasks(segment, num_slots, (turn + 0.5) / num_tasks) for turn in range(num_tasks)]
    played = Counter(task for turn in turns for task in turn)
    assert played == dict.fromkeys(tasks, num_slots)
    assert all({turn[slot] for turn in turns} == set(tasks) for slot in range(num_slots))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(1, 40))
def test_an_unequal_mixture_is_met_within_one_slot_a_turn(parts: list[int], num_slots: int) -> None:
    tasks = tuple(f"t{i}" for i in range(len(parts)))
    weights = tuple(part / sum(parts) for part in parts)
    segment = Segment(tasks, weights, frames=1000)
    for turn in range(len(tasks)):
        played = Counter(assign_tasks(segment, num_slots, (turn + 0.5) / len(tasks)))
        for task, weight in zip(tasks, weights, strict=True):
            assert abs(played[task] - weight * num_slots) <= 1 + 1e-6


def test_extra_frames_come_at_the_end_of_each_segment_on_top_of_its_own() -> None:
    plan = Plan("p", (single("a", frames=100), single("b", frames=60), single("c", episodes=3)), evaluate=("a",))
    longer = lengthened(plan, 0.5)
    assert [(s.frames, s.extra_frames, s.episodes) for s in longer.segments] == [
        (150, 50, None),
        (90, 30, None),
        (None, 0, 3),
    ]
    assert lengthened(plan, 0.0) == plan
    with pytest.raises(ConfigError, match="extra_frames"):
        Segment(("a",), (1.0,), frames=10, extra_frames=10)


def test_a_method_is_told_which_frames_of_a_visit_are_extra() -> None:
    plan = lengthened(Plan("p", (single("a", frames=100), single("b", frames=60)), evaluate=("a",)), 0.5)
    visit = PlanCursor(plan, 1).visit(150)
    assert (visit.index, visit.start_frames, visit.end_frames, visit.extra_frames) == (1, 150, 240, 30)
