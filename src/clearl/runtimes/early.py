"""A head start: children import what they need while the process that wants them does the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clearl.config import RunConfig
from clearl.runtimes.machine import cores
from clearl.runtimes.process import Spares

SLOTS_IF_SMALL = 16
"""Where observations are small, a worker has at least so many slots."""

_started: list[Spares] = []


@contextmanager
def head_start(config: RunConfig, parts_entry: str) -> Iterator[None]:
    """Have children at work on their imports for the run that follows within the block."""
    if config.runtime == "local":
        _started.append(spare_children(config, parts_entry))
    try:
        yield
    finally:
        while _started:  # there was no run after all
            _started.pop().close()


def spare_children(config: RunConfig, parts_entry: str) -> Spares:
    """Children for a run of this config, whose parts they make: those that have a head start, else new ones."""
    if _started:
        return _started.pop()
    spares = Spares([parts_entry.partition(":")[0], "clearl.runtimes.evaluator_main"])
    # One too many is no loss: it becomes the evaluator.
    spares.prepare(config.workers or max(1, min(cores(), config.slots // SLOTS_IF_SMALL)))
    return spares
