"""The settings that protocols declare, in a module of their own like those of methods and suites.

The first line of a docstring is the heading of the settings in `--help`. Your own protocol may declare one of
these classes or a subclass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from clearl.config.engine import Between, Share, Tag, settings_class
from clearl.config.owners import used_settings

if TYPE_CHECKING:
    from clearl.config import RunConfig


@settings_class
class ProbeSettings:
    """Protocol probe"""

    probe_task: Annotated[str | None, "protocol probe: the task that is visited once"] = None
    probe_position: Annotated[int, Between(0, 10**6), Tag.MACHINE, "protocol probe: the number of visits before it"] = 0

    @staticmethod
    def conflicts(config: RunConfig) -> Iterator[str]:
        is_used = "probe_task" in used_settings(config)
        if is_used and config.probe_task is None:
            yield f"protocol {config.protocol} needs probe_task"
        if config.probe_task is not None and not is_used:
            yield f"probe_task is for protocol probe, but protocol is {config.protocol!r}"


@settings_class
class OverlapSettings:
    """Protocol overlap"""

    overlap_share: Annotated[Share, "protocol overlap: the share of a visit in which the next task fades in"] = 0.5


@settings_class
class RangeSettings:
    """Ranges of parameters"""

    drift_values: Annotated[int, Between(2, 100), "protocol drift: values that a range a..b stands for"] = 5
    drift_applied: Annotated[
        Literal["reset", "at-once"], "protocol drift: a slot's environment changes with a new episode, or in one"
    ] = "reset"

    @staticmethod
    def conflicts(config: RunConfig) -> Iterator[str]:
        if config.drift_applied != "reset" and "drift_applied" not in used_settings(config):
            yield f"drift_applied {config.drift_applied} is for protocol drift, but protocol is {config.protocol!r}"


@settings_class
class DriftSettings(RangeSettings):
    """Protocol drift"""

    drift_shape: Annotated[
        Literal["linear", "periodic", "random-walk", "steps"], "protocol drift: the way through the tasks"
    ] = "linear"


@settings_class
class ScheduleSettings:
    """Protocol schedule"""

    schedule: Annotated[str | None, "protocol schedule: a YAML file with the segments"] = None

    @staticmethod
    def conflicts(config: RunConfig) -> Iterator[str]:
        if ("schedule" in used_settings(config)) != (config.schedule is not None):
            yield "protocol schedule and the setting schedule (a YAML file) need each other"
