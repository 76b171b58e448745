"""Streams without boundaries that a method is told of: random, overlap, drift, a schedule of one's own, no end."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from clearl.cli.plan import draw_plans
from clearl.config import FOREVER, RunConfig, from_yaml, resolve, to_yaml
from clearl.errors import ConfigError, UnknownNameError
from clearl.protocols import make_plans
from clearl.protocols.schedule import schedule_tasks
from clearl.runtimes.recorder import thinned
from clearl.tasks.plan import Plan, assign_tasks
from clearl.tasks.schedule import PlanCursor

TASKS = ("a", "b", "c")


def plan_of(protocol: str, **settings: object) -> Plan:
    config = RunConfig(**{"protocol": protocol, "cycles": 4, "frames_per_visit": 1_000, **settings})
    (plan,) = make_plans(config, TASKS)
    return plan


def test_random_gives_each_task_its_visits_and_the_plan_its_length() -> None:
    plan = plan_of("random", seed=3)
    order = [segment.tasks[0] for segment in plan.segments]
    assert plan.total_frames == 12_000 and all(order.count(task) == 4 for task in TASKS)
    assert all(one != other for one, other in pairwise(order))
    assert len({segment.frames for segment in plan.segments}) > 6
    assert plan == plan_of("random", seed=3) != plan_of("random", seed=4)


def test_overlap_moves_from_task_to_task_without_a_jump() -> None:
    plan = plan_of("overlap", overlap_share=0.25, cycles=2)
    assert plan.total_frames == 6_000
    assert [(s.tasks, s.frames) for s in plan.segments[:2]] == [(("a",), 750), (("a", "b"), 250)]
    assert plan.segments[-1].tasks == ("c",), "nothing follows the last visit"
    assert_no_jump(plan)


@pytest.mark.parametrize("shape", ["linear", "periodic", "random-walk"])
@pytest.mark.parametrize("cycles", [1, 3, FOREVER])
def test_a_drift_never_jumps(shape: str, cycles: int) -> None:
    plan = plan_of("drift", drift_shape=shape, cycles=cycles)
    assert_no_jump(plan)
    assert plan.forever == (cycles == FOREVER) and plan.evaluate == TASKS
    neighbours = {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")}
    assert {segment.tasks for segment in plan.segments} <= neighbours


def assert_no_jump(plan: Plan) -> None:
    """Each segment begins with the mixture that the last one ended with, and slots move one by one."""
    segments = [*plan.segments, plan.segments[0]] if plan.forever and plan.name != "drift" else list(plan.segments)
    for one, other in pairwise(segments):
        end = dict(zip(one.tasks, one.weights_at(1.0), strict=True))
        start = dict(zip(other.tasks, other.weights_at(0.0), strict=True))
        assert {t: w for t, w in end.items() if w} == {t: w for t, w in start.items() if w}
    moved = [
        sum(a != b for a, b in zip(assign_tasks(s, 64, i / 1000), assign_tasks(s, 64, (i + 1) / 1000), strict=True))
        for s in plan.segments
        for i in range(1000)
    ]
    assert max(moved) <= 1


def test_steps_are_visits() -> None:
    plan = plan_of("drift", drift_shape="steps", cycles=2)
    assert [segment.tasks for segment in plan.segments] == [("a",), ("b",), ("c",)] * 2


def test_protocols_by_frames_refuse_episodes() -> None:
    with pytest.raises(ConfigError, match="needs a length in frames"):
        make_plans(RunConfig(protocol="overlap", frames_per_visit=None, episodes_per_visit=3), TASKS)


GOOD = """
segments:
  - {tasks: [a, b], weights: [0.25, 0.75], frames: 15000}
  - {tasks: c, episodes: 10, repeat: 2}
  - {tasks: [a, c], weights: [1, 0], end_weights: [0, 1], frames: 500}
evaluate: [a, c]
"""


def scheduled(tmp_path: Path, text: str, **settings: object) -> Plan:
    (tmp_path / "plan.yaml").write_text(text)
    return plan_of("schedule", schedule=str(tmp_path / "plan.yaml"), cycles=1, **settings)


def test_a_schedule_is_what_its_file_says(tmp_path: Path) -> None:
    plan = scheduled(tmp_path, GOOD)
    assert [(s.tasks, s.weights, s.frames, s.episodes, s.end_weights) for s in plan.segments] == [
        (("a", "b"), (0.25, 0.75), 15_000, None, None),
        (("c",), (1.0,), None, 10, None),
        (("c",), (1.0,), None, 10, None),
        (("a", "c"), (1.0, 0.0), 500, None, (0.0, 1.0)),
    ]
    assert plan.evaluate == ("a", "c") and plan.total_frames is None
    assert schedule_tasks(tmp_path / "plan.yaml") == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("segments: [{tasks: [x], frames: 9}]", "task of .*segment 1 'x'"),
        ("segments: [{tasks: [a, b], weights: [0.5, 0.6], frames: 9}]", "segment 1: .*sum to 1"),
        ("segments: [{tasks: [a, b], weights: [1], frames: 9}]", "must be 2 numbers"),
        ("segments: [{tasks: [a]}]", "ends either by frames or by episodes"),
        ("segments: [{tasks: [a], frames: 0}]", "frames must be a whole number above 0"),
        ("segments: [{tasks: [a], frames: 9, lenght: 1}]", "key of .*'lenght'"),
        ("segments: []", "needs segments"),
        ("segment: [{tasks: [a], frames: 9}]", "did you mean 'segments'"),
        ("segments: [{frames: 9}]", "needs tasks"),
        ("segments: [{tasks: [a], frames: 9, repeat: 1000000}]", "the most is 100000"),
        ("- 1", "must be a mapping"),
    ],
)
def test_a_bad_schedule_is_one_clear_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=problem) as caught:
        scheduled(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_schedule_and_its_protocol_need_each_other() -> None:
    for settings in ({"protocol": "schedule"}, {"schedule": "x.yaml"}):
        with pytest.raises(ConfigError, match="need each other"):
            RunConfig(**settings)
    with pytest.raises(ConfigError, match="cannot be read|not found|No such file|does not exist|is not there"):
        plan_of("schedule", schedule="/nowhere.yaml")


def test_forever_is_a_word_and_survives_its_file() -> None:
    config = resolve(flags={"cycles": "forever", "buffer_frames": 100_000})
    assert config.cycles == FOREVER and from_yaml(to_yaml(config)) == config
    with pytest.raises(ConfigError, match="between 1 and 10_000 or forever, got 'ever'"):
        resolve(flags={"cycles": "ever"})
    with pytest.raises(ConfigError, match="anneal needs an end"):
        resolve(flags={"cycles": "forever", "anneal": True})
    with pytest.raises(ConfigError, match="give buffer_frames"):
        config_without_buffer = replace(config, buffer_frames=None)
        config_without_buffer.buffer_size_frames(None)
    for protocol, probe in (("separate", None), ("probe", "c")):
        with pytest.raises(ConfigError, match="not forever"):
            make_plans(RunConfig(protocol=protocol, cycles=FOREVER, probe_task=probe), TASKS)


def test_a_plan_without_an_end_goes_round() -> None:
    plan = plan_of("sequential", cycles=FOREVER)
    cursor, seen = PlanCursor(plan, 2), []
    for _ in range(10):
        grant = cursor.grant(500)
        assert grant is not None and not cursor.finished
        seen.append((grant.segment, grant.tasks[0]))
    assert seen == [(index // 2, TASKS[index // 2 % 3]) for index in range(10)]
    visit = cursor.visit(4_200)
    assert (visit.index, visit.tasks, visit.start_frames, visit.end_frames) == (4, ("b",), 4_000, 5_000)


def test_rows_of_training_grow_with_the_logarithm_of_the_length() -> None:
    def rows(updates: int) -> int:
        return sum(update % thinned(20, update) == 0 for update in range(20, updates + 1, 20))

    assert rows(100_000) == 5_000
    assert rows(1_600_000) - rows(800_000) == rows(800_000) - rows(400_000) == 5_000


def test_the_drawing_has_a_line_for_each_task() -> None:
    drawing = draw_plans([plan_of("overlap", cycles=1)], plain=True)
    assert drawing.splitlines()[0] == "overlap: 6 segments, 3,000 frames; 3 tasks are evaluated"
    alone = replace(plan_of("overlap", cycles=1), evaluate=("a",))
    assert draw_plans([alone], plain=True).splitlines()[0].endswith("; 1 task is evaluated")
    lines = {line.split("|")[0].strip(): line.split("|")[1] for line in drawing.splitlines()[1:]}
    assert lines.keys() == set(TASKS) and {len(line) for line in lines.values()} == {72}
    assert lines["a"].startswith("#" * 11) and lines["c"].endswith("#" * 24)
    assert set("".join(lines.values())) == set(" .:*#")
