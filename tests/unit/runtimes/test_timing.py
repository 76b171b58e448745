"""A suite that is measured: what it can, and when it sends heartbeats."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import clearl.acting.actor
import clearl.acting.evaluator
import clearl.acting.worker
from clearl.config import RunConfig
from clearl.runtimes.programs import heartbeat
from clearl.runtimes.timing import Stopwatch, TimedSuite, beating
from clearl.suites import make_suite
from clearl.tasks.suite import ChangesInPlay, Suite

TASKS = ("pendulum", "pendulum?g=5")


def pendulums(applied: str) -> tuple[Suite, TimedSuite]:
    config = RunConfig(suite="control", tasks=TASKS, protocol="drift", drift_applied=applied)
    suite = make_suite("control", TASKS, config)
    return suite, TimedSuite(suite, Stopwatch(), lambda building: None)


def test_what_acting_asks_of_a_suite_is_asked_of_the_one_that_is_measured() -> None:
    programs = (clearl.acting.actor, clearl.acting.worker, clearl.acting.evaluator)
    found = {each for module in programs for each in vars(module).values() if getattr(each, "_is_protocol", False)}
    asked = [each for each in found if getattr(each, "_is_runtime_protocol", False)]
    assert ChangesInPlay in asked
    suite, timed = pendulums("at-once")
    for capability in asked:
        assert isinstance(suite, capability) and isinstance(timed, capability), capability


def test_a_measured_environment_changes_its_task_in_the_middle_of_an_episode() -> None:
    suite, timed = pendulums("at-once")
    assert isinstance(suite, ChangesInPlay) and isinstance(timed, ChangesInPlay) and timed.changes_in_play
    plain, measured = (each.make("pendulum", num_envs=1, seed=3) for each in (suite, timed))
    frames = [envs.reset() for envs in (plain, measured)]
    changed = [suite.change(plain, "pendulum?g=5"), timed.change(measured, "pendulum?g=5")]
    pushed = np.full((1, 1), 0.3, np.float32)
    steps = [envs.step(pushed) for envs in changed]
    assert np.array_equal(frames[0], frames[1]) and np.array_equal(steps[0].frames, steps[1].frames)
    assert not steps[1].first.any(), "the episode goes on"


def test_a_measured_suite_whose_tasks_change_by_reset_says_so() -> None:
    _, timed = pendulums("reset")
    assert isinstance(timed, ChangesInPlay) and not timed.changes_in_play


def test_each_call_of_an_environment_is_preceded_by_a_heartbeat_and_building_by_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The resets of all tasks of an evaluation, and a step of all of them, may take longer than a step ever should."""
    monkeypatch.setattr("clearl.runtimes.programs._ALIVE_EVERY_S", -1.0)
    heard = list[str]()
    sink: Any = SimpleNamespace(send=lambda message: heard.append("beat"))
    suite = make_suite("control", TASKS, RunConfig(suite="control", tasks=TASKS))
    watch = beating(Stopwatch(), heartbeat(sink))
    timed = TimedSuite(suite, watch, lambda building: heard.append("building" if building else "built"))
    envs = [timed.make(task, num_envs=2, seed=0) for task in TASKS]
    assert heard == ["beat", "building", "built"] * 2
    for each in envs:
        each.reset()
        each.step(np.zeros((2, 1), np.float32))
    assert heard[6:] == ["beat"] * 4
