"""How long a task is trained on before the next one comes: the words that all protocols share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from clearl.config import RunConfig
from clearl.tasks.plan import Segment, single


class Length(TypedDict, total=False):
    """The two ways in which a segment can end, as keywords of `Segment`."""

    frames: int
    episodes: int


def visits_length(config: RunConfig, count: int = 1) -> Length:
    """The length of `count` visits, in the unit that the config gives."""
    if config.episodes_per_visit is not None:
        return {"episodes": config.episodes_per_visit * count}
    assert config.frames_per_visit is not None, "RunConfig has either frames or episodes"
    return {"frames": config.frames_per_visit * count}


def cyclic_visits(tasks: Sequence[str], config: RunConfig) -> tuple[Segment, ...]:
    """`cycles` times through the tasks in their order."""
    return tuple(single(task, **visits_length(config)) for _ in range(config.cycles) for task in tasks)
