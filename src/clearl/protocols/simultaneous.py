"""One network on all tasks at once: the upper reference for sequences."""

from __future__ import annotations

from collections.abc import Sequence

from clearl.config import RunConfig
from clearl.protocols.visits import all_visits, is_forever, visits_length
from clearl.tasks.plan import Plan, Segment


def simultaneous(tasks: Sequence[str], config: RunConfig) -> list[Plan]:
    """Return one segment, an equal mixture of all tasks, as long as all visits of `sequential` together."""
    weights = (1 / len(tasks),) * len(tasks)
    segment = Segment(tuple(tasks), weights, **visits_length(config, all_visits(tasks, config)))
    return [Plan("simultaneous", (segment,), evaluate=tuple(tasks), forever=is_forever(config))]
