"""A worker: an actor, and a replay shard for each of its slots. What it produces are pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearl.actor import Actor, Episode
from clearl.replay.shard import ReplayShard, insert_each, sample_each
from clearl.types import Rows


class Worker:
    """Produces one (new, replay) pair for each of its slots at a time, as in the paper's Appendix A.1."""

    def __init__(self, actor: Actor, shards: Sequence[ReplayShard]) -> None:
        self.actor, self.shards = actor, list(shards)

    def produce(self, tasks: Sequence[str], new: Rows, replay: Rows, has_replay: np.ndarray) -> list[Episode]:
        """Act for one unroll, insert it into the shards, and sample one of the past for each slot."""
        episodes = self.act(tasks, new)
        self.remember(new, replay, has_replay)
        return episodes

    def act(self, tasks: Sequence[str], new: Rows) -> list[Episode]:
        """The first half of `produce`: one unroll for each slot."""
        self.actor.assign(tasks)
        return self.actor.fill(new)

    def remember(self, new: Rows, replay: Rows, has_replay: np.ndarray) -> None:
        """The second half: what the shards make of it."""
        insert_each(self.shards, new)
        sample_each(self.shards, replay, has_replay)

    def replay_counters(self) -> dict[str, int]:
        """What the shards hold, over all slots."""
        return {
            "held": sum([shard.held for shard in self.shards]),
            # Without waste: when segments are rewritten depends on when a run was resumed, what they hold does not.
            "bytes": sum([shard.held_nbytes for shard in self.shards]),
            "quarantined": sum([shard.quarantined for shard in self.shards]),
        }

    def close(self) -> None:
        """Close environments and shards."""
        self.actor.close()
        for shard in self.shards:
            shard.close()
