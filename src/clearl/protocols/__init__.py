"""Protocols by name: each fixes the order of a suite's tasks, their length and the number of networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.registry import Registry
from clearl.tasks.plan import Plan

PROTOCOLS: Registry[Callable[[Sequence[str], RunConfig], list[Plan]]] = Registry(
    "protocol",
    {
        "sequential": "clearl.protocols.sequential:sequential",
        "simultaneous": "clearl.protocols.simultaneous:simultaneous",
        "separate": "clearl.protocols.separate:separate",
        "probe": "clearl.protocols.probe:probe",
        "random": "clearl.protocols.random:random",
        "overlap": "clearl.protocols.overlap:overlap",
        "drift": "clearl.protocols.drift:drift",
        "schedule": "clearl.protocols.schedule:schedule",
    },
    settings={
        "probe": "clearl.protocols.settings:ProbeSettings",
        "overlap": "clearl.protocols.settings:OverlapSettings",
        "drift": "clearl.protocols.settings:DriftSettings",
        "schedule": "clearl.protocols.settings:ScheduleSettings",
    },
    group="clearl.protocols",
)


def make_plans(config: RunConfig, tasks: Sequence[str]) -> list[Plan]:
    """Return the plans of `config.protocol` for the tasks of a suite: one for each network that is trained."""
    plan = PROTOCOLS.get(config.protocol)
    if not tasks:
        raise ConfigError("a plan needs at least one task")
    return plan(tasks, config)
