from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clearl.config import RunConfig
from clearl.errors import ConfigError, UnknownNameError
from clearl.protocols import PROTOCOLS, make_plans

CONFIG = RunConfig(cycles=2, frames_per_visit=100)
PROBE = replace(CONFIG, protocol="probe", probe_task="p", probe_position=3)


def visited(config: RunConfig, tasks: tuple[str, ...]) -> list[str]:
    (plan,) = make_plans(config, tasks)
    return [task for segment in plan.segments for task in segment.tasks]


def test_sequential_goes_through_the_tasks_in_order_and_evaluates_all() -> None:
    (plan,) = make_plans(CONFIG, ("b", "a"))
    assert [(s.tasks, s.frames) for s in plan.segments] == [(("b",), 100), (("a",), 100)] * 2
    assert plan.evaluate == ("b", "a")


def test_simultaneous_is_one_equal_mixture() -> None:
    (plan,) = make_plans(replace(CONFIG, protocol="simultaneous"), ("a", "b"))
    (segment,) = plan.segments
    assert (segment.weights, segment.frames) == ((0.5, 0.5), 400)


def test_separate_gives_each_task_a_network_and_says_how_many_share_the_axis() -> None:
    plans = make_plans(replace(CONFIG, protocol="separate"), ("a", "b", "c"))
    assert [(p.name, p.evaluate, p.total_frames, p.frames_scale) for p in plans] == [
        (task, (task,), 200, 3) for task in ("a", "b", "c")
    ]


def test_the_probe_comes_before_the_visit_of_that_number_and_is_evaluated_throughout() -> None:
    assert visited(PROBE, ("a", "b", "p")) == ["a", "b", "a", "p", "b"]
    assert visited(replace(PROBE, probe_position=0), ("a", "b", "p")) == ["p", "a", "b", "a", "b"]
    assert visited(replace(PROBE, probe_position=4), ("a", "b", "p")) == ["a", "b", "a", "b", "p"]
    (plan,) = make_plans(PROBE, ("a", "b", "p"))
    assert plan.evaluate == ("a", "b", "p")
    assert plan.total_frames == 500


def test_a_probe_outside_the_sequence_is_refused() -> None:
    with pytest.raises(ConfigError, match="probe_position must be from 0 to 4"):
        make_plans(replace(PROBE, probe_position=5), ("a", "b", "p"))


def test_visits_can_be_counted_in_episodes() -> None:
    config = replace(CONFIG, frames_per_visit=None, episodes_per_visit=7)
    (plan,) = make_plans(config, ("a", "b"))
    assert [(s.frames, s.episodes) for s in plan.segments] == [(None, 7)] * 4
    (plan,) = make_plans(replace(config, protocol="simultaneous"), ("a", "b"))
    assert plan.segments[0].episodes == 28


def test_an_unknown_protocol_and_no_tasks_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'sequential'"):
        make_plans(replace(CONFIG, protocol="sequentail"), ("a", "b"))
    with pytest.raises(ConfigError, match="at least one task"):
        make_plans(CONFIG, ())


def test_only_the_probe_is_no_sequence() -> None:
    with pytest.raises(ConfigError, match="besides the probe"):
        make_plans(PROBE, ("p",))


def test_every_registered_protocol_can_be_planned(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("segments: [{tasks: [a, b], frames: 100}]")
    for name in PROTOCOLS:
        schedule = str(tmp_path / "plan.yaml") if name == "schedule" else None
        config = replace(PROBE if name == "probe" else CONFIG, protocol=name, schedule=schedule)
        assert make_plans(config, ("a", "b"))
