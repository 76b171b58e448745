"""One network on one task after the other, over and over."""

from __future__ import annotations

from collections.abc import Sequence

from clearl.config import RunConfig
from clearl.protocols.visits import cyclic_visits, is_forever
from clearl.tasks.plan import Plan


def sequential(tasks: Sequence[str], config: RunConfig) -> list[Plan]:
    """Plan `cycles` rounds through the tasks in their order; all are evaluated throughout."""
    return [Plan("sequential", cyclic_visits(tasks, config), evaluate=tuple(tasks), forever=is_forever(config))]
