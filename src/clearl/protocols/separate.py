"""One network for each task: learning without interference."""

from __future__ import annotations

from collections.abc import Sequence

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.protocols.visits import is_forever, visits_length
from clearl.tasks.plan import Plan, single


def separate(tasks: Sequence[str], config: RunConfig) -> list[Plan]:
    """Return a plan for each task, with the frames that all visits of `sequential` give it."""
    if is_forever(config):
        raise ConfigError("protocol separate trains one network after the other: cycles must be a number, not forever")
    length = visits_length(config, config.cycles)
    return [Plan(task, (single(task, **length),), evaluate=(task,), frames_scale=len(tasks)) for task in tasks]
