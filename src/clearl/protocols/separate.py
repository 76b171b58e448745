"""One network for each task: what learning looks like where nothing can interfere."""

from __future__ import annotations

from collections.abc import Sequence

from clearl.config import RunConfig
from clearl.protocols.visits import visits_length
from clearl.tasks.plan import Plan, single


def separate(tasks: Sequence[str], config: RunConfig) -> list[Plan]:
    """A plan for each task, with the frames that all visits of `sequential` give it."""
    length = visits_length(config, config.cycles)
    return [Plan(task, (single(task, **length),), evaluate=(task,), frames_scale=len(tasks)) for task in tasks]
