from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearl.config import RunConfig
from clearl.protocols import make_plans

TASKS = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=7, unique=True)


def frames_per_task(config: RunConfig, tasks: list[str]) -> dict[str, float]:
    frames: dict[str, float] = defaultdict(float)
    for plan in make_plans(config, tasks):
        for segment in plan.segments:
            for task, weight in zip(segment.tasks, segment.weights, strict=True):
                frames[task] += round(weight * ((segment.frames or 0) + (segment.episodes or 0)), 6)
    return frames


@pytest.mark.parametrize("unit", ["frames_per_visit", "episodes_per_visit"])
@given(tasks=TASKS, cycles=st.integers(1, 6), length=st.integers(1, 10**6))
def test_every_protocol_gives_a_task_the_same_frames(unit: str, tasks: list[str], cycles: int, length: int) -> None:
    config = RunConfig(cycles=cycles, **{"frames_per_visit": None, unit: length})
    expected = dict.fromkeys(tasks, cycles * length)
    for protocol in ("sequential", "simultaneous", "separate"):
        assert frames_per_task(replace(config, protocol=protocol), tasks) == pytest.approx(expected)


@given(tasks=TASKS, cycles=st.integers(1, 6), data=st.data())
def test_the_probe_adds_one_visit_and_takes_none_away(tasks: list[str], cycles: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, cycles * len(tasks)))
    config = RunConfig(protocol="probe", cycles=cycles, frames_per_visit=10, probe_task="z", probe_position=position)
    assert frames_per_task(config, tasks) == {**dict.fromkeys(tasks, 10 * cycles), "z": 10}
