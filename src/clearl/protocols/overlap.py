"""One network on one task after the other without a switch: the next task fades in while the last one fades out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.protocols.visits import is_forever, planned_cycles, visits_frames
from clearl.tasks.plan import Plan, Segment, single


def overlap(tasks: Sequence[str], config: RunConfig) -> list[Plan]:
    """Plan as `sequential` does, but shift linearly to the next task in the last `overlap_share` of each visit."""
    if len(tasks) < 2:
        raise ConfigError("protocol overlap needs two tasks or more; add one to --tasks")
    frames = visits_frames(config)
    fading = round(frames * config.overlap_share)
    order = [*tasks] * planned_cycles(config)
    segments: list[Segment] = []
    for task, following in pairwise([*order, order[0]]):
        if frames > fading:
            segments.append(single(task, frames=frames - fading))
        if fading:
            segments.append(Segment((task, following), (1.0, 0.0), frames=fading, end_weights=(0.0, 1.0)))
    if not is_forever(config) and fading:  # nothing follows the last visit
        segments[-1] = single(order[-1], frames=fading)
    return [Plan("overlap", tuple(segments), evaluate=tuple(tasks), forever=is_forever(config))]
