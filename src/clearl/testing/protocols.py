"""Check a protocol: a pure function from tasks and settings to plans."""

from __future__ import annotations

from typing import Any

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.protocols import make_plans

TASKS = ("b", "a", "c")


def check_protocol(name: str, **settings: Any) -> None:
    """Plan three tasks, by frames and by episodes; `settings` are those that the protocol needs.

    A protocol may refuse a length in episodes, by a `ConfigError`.
    """
    given = {"protocol": name, "cycles": 2, **settings}
    _check_plans(RunConfig(**{"frames_per_visit": 100, **given}))
    try:
        by_episodes = RunConfig(**{"frames_per_visit": None, "episodes_per_visit": 7, **given})
        make_plans(by_episodes, TASKS)
    except ConfigError:
        return
    _check_plans(by_episodes)


def _check_plans(config: RunConfig) -> None:
    plans = make_plans(config, TASKS)
    assert plans, "a protocol gives at least one plan"
    assert plans == make_plans(config, TASKS), "a protocol is pure: it gives the same plans twice"
    trained = {task for plan in plans for segment in plan.segments for task in segment.tasks}
    assert trained == {*TASKS}, f"every task is trained and no other, got {sorted(trained)}"
    assert len({plan.name for plan in plans}) == len(plans), "plans have names of their own"
    for plan in plans:
        assert {*plan.evaluate} <= {*TASKS} and plan.evaluate, "some of the tasks are evaluated, and no others"
        assert plan.frames_scale >= 1
        if config.frames_per_visit is not None:
            assert plan.total_frames is not None, "with frames_per_visit every segment ends by frames"
