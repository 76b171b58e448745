"""One network on tasks in random order, each for a random time: switches are unpredictable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearl.config import RunConfig
from clearl.protocols.visits import is_forever, visits_frames
from clearl.seeding import generator
from clearl.tasks.plan import Plan, single

FOREVER_CYCLES = 100
"""The cycles drawn for a run without an end; after them, the plan repeats."""


def random(tasks: Sequence[str], config: RunConfig) -> list[Plan]:
    """Plan as many visits to each task as `sequential` has, in an order and with lengths drawn from the seed.

    Lengths lie between half and one and a half times `frames_per_visit`; together they are as long as `sequential`.
    """
    rng = generator(config.seed, "random protocol")
    cycles = FOREVER_CYCLES if is_forever(config) else config.cycles
    order = _order(list(tasks), cycles, rng)
    total = visits_frames(config, len(order))
    ends = np.cumsum(rng.uniform(0.5, 1.5, len(order)))
    bounds = np.round(ends / ends[-1] * total).astype(int)
    lengths = np.maximum(1, np.diff(bounds, prepend=0))
    segments = tuple(single(task, frames=int(frames)) for task, frames in zip(order, lengths, strict=True))
    return [Plan("random", segments, evaluate=tuple(tasks), forever=is_forever(config))]


def _order(tasks: list[str], cycles: int, rng: np.random.Generator) -> list[str]:
    """Return every task once in each cycle, and none twice in succession if there are several."""
    order: list[str] = []
    for _ in range(cycles):
        drawn = [tasks[i] for i in rng.permutation(len(tasks))]
        if order and order[-1] == drawn[0] and len(tasks) > 1:
            other = int(rng.integers(1, len(tasks)))
            drawn[0], drawn[other] = drawn[other], drawn[0]
        order += drawn
    return order
