"""Check a protocol: a pure function from tasks and settings to plans."""

from __future__ import annotations

from typing import Any

from clearl.config import RunConfig
from clearl.protocols import make_plans

TASKS = ("b", "a", "c")


def check_protocol(name: str, **settings: Any) -> None:
    """Plan three tasks, by frames and by episodes; `settings` are those that the protocol needs."""
    for length in ({"frames_per_visit": 100}, {"frames_per_visit": None, "episodes_per_visit": 7}):
        config = RunConfig(**{"protocol": name, "cycles": 2, **length, **settings})
        plans = make_plans(config, TASKS)
        assert plans, "a protocol gives at least one plan"
        assert plans == make_plans(config, TASKS), "a protocol is pure: it gives the same plans twice"
        trained = {task for plan in plans for segment in plan.segments for task in segment.tasks}
        assert trained == {*TASKS}, f"every task is trained and no other, got {sorted(trained)}"
        assert len({plan.name for plan in plans}) == len(plans), "plans have names of their own"
        for plan in plans:
            assert {*plan.evaluate} <= {*TASKS} and plan.evaluate, "some of the tasks are evaluated, and no others"
            assert plan.frames_scale >= 1
            by_frames = [segment.frames is not None for segment in plan.segments]
            assert all(by_frames) if config.episodes_per_visit is None else not any(by_frames), (
                "segments end by what the settings say: frames_per_visit or episodes_per_visit"
            )
