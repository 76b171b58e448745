"""The lengths of visits, for all protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from clearl.config import FOREVER, RunConfig
from clearl.errors import ConfigError
from clearl.tasks.plan import Segment, single


class Length(TypedDict, total=False):
    """The two ways in which a segment can end, as keywords of `Segment`."""

    frames: int
    episodes: int


def visits_length(config: RunConfig, count: int = 1) -> Length:
    """Return the length of `count` visits, in the unit that the config sets."""
    if config.episodes_per_visit is not None:
        return {"episodes": config.episodes_per_visit * count}
    assert config.frames_per_visit is not None, "RunConfig has either frames or episodes"
    return {"frames": config.frames_per_visit * count}


def visits_frames(config: RunConfig, count: int = 1) -> int:
    """Return the frames of `count` visits, for protocols that divide them; visits by episodes are refused."""
    if config.frames_per_visit is None:
        raise ConfigError(
            f"protocol {config.protocol} needs a length in frames: give frames_per_visit instead of episodes_per_visit"
        )
    return config.frames_per_visit * count


def cyclic_visits(tasks: Sequence[str], config: RunConfig) -> tuple[Segment, ...]:
    """Return the visits of `cycles` rounds through the tasks; of one round if the plan repeats for ever."""
    return tuple(single(task, **visits_length(config)) for _ in range(planned_cycles(config)) for task in tasks)


def is_forever(config: RunConfig) -> bool:
    """Return whether the plan repeats without an end."""
    return config.cycles == FOREVER


def planned_cycles(config: RunConfig) -> int:
    """Return the number of cycles that the plan lists: one if it has no end."""
    return 1 if is_forever(config) else config.cycles


def all_visits(tasks: Sequence[str], config: RunConfig) -> int:
    """Return how many visits the plan has in all; those of one cycle if it has no end."""
    return planned_cycles(config) * len(tasks)
