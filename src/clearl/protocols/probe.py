"""A task met once, early or late in a cyclic sequence of others (paper, Section 4.3): does a full buffer slow it?"""

from __future__ import annotations

from collections.abc import Sequence

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.protocols.visits import cyclic_visits, is_forever, visits_length
from clearl.tasks.plan import Plan, single


def probe(tasks: Sequence[str], config: RunConfig) -> list[Plan]:
    """Plan the sequence of the other tasks, with one visit to `probe_task` before visit `probe_position` (from 0)."""
    assert config.probe_task is not None, "RunConfig asks for it where the protocol is probe"
    if is_forever(config):
        raise ConfigError("protocol probe counts its visits: cycles must be a number, not forever")
    others = [task for task in tasks if task != config.probe_task]
    if not others:
        raise ConfigError("protocol 'probe' needs a task besides the probe task; add one to --tasks")
    segments, position = cyclic_visits(others, config), config.probe_position
    if not 0 <= position <= len(segments):
        raise ConfigError(f"probe_position must be from 0 to {len(segments)}, the number of visits, got {position}")
    visit = single(config.probe_task, **visits_length(config))
    inserted = (*segments[:position], visit, *segments[position:])
    return [Plan(f"probe-{position}", inserted, evaluate=(*others, config.probe_task))]
