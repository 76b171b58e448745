"""A worker: an actor, and a replay shard for each of its slots. What it produces are pairs."""

from __future__ import annotations

from collections.abc import Sequence

from clearl.acting.actor import Actor, Episode
from clearl.errors import EnvironmentFaultError
from clearl.replay.labels import ByTask, Label, count_by_task
from clearl.replay.shard import ReplayShard, insert_each
from clearl.unroll import Payload, Unroll


class Worker:
    """Produces one (new, replay) pair for each of its slots at a time, as in the paper's Appendix A.1.

    `draws`: replayed unrolls in a pair; the paper has one.
    """

    def __init__(self, actor: Actor, shards: Sequence[ReplayShard], draws: int = 1) -> None:
        self.actor, self.shards, self.draws = actor, list(shards), draws
        self._played: tuple[Sequence[str], int] = ((), -1)

    def act(self, tasks: Sequence[str], new: Unroll, frames: int = -1) -> list[Episode]:
        """Play the first half of a pair: one unroll for each slot; `frames` had been granted before it."""
        self._played = tasks, frames
        self.actor.assign(tasks)
        return self.actor.fill(new)

    def take_faults(self) -> list[EnvironmentFaultError]:
        """Return the faults since the last call after which environments were rebuilt."""
        return self.actor.take_faults()

    def recall(self) -> list[Payload | None]:
        """Draw the second half: `draws` past unrolls for each slot in turn, None where there are none.

        They stay packed: the learner unpacks only what it takes.
        """
        drawn = [shard.draw() for shard in self.shards for _ in range(self.draws)]
        return drawn or [None] * (len(self.actor.slots) * self.draws)

    def remember(self, new: Unroll) -> None:
        """Insert the first half into the shards: after `recall`, so that the second is never the same unroll.

        The paper inserts first and then draws another; either way the draw is uniform over all earlier unrolls.
        """
        if self.shards:
            insert_each(self.shards, new, labels_of(new, *self._played))

    def replay_counters(self) -> dict[str, int]:
        """Count what the shards hold, over all slots."""
        return {
            "held": sum([shard.held for shard in self.shards]),
            # Without waste: when segments are rewritten depends on when a run was resumed, what they hold does not.
            "bytes": sum([shard.held_nbytes for shard in self.shards]),
            "quarantined": sum([shard.quarantined for shard in self.shards]),
        }

    def replay_by_task(self) -> ByTask:
        """Count what the shards hold of each task, over all slots."""
        return count_by_task([shard.labels() for shard in self.shards])

    def close(self) -> None:
        """Close environments and shards."""
        self.actor.close()
        for shard in self.shards:
            shard.close()


def labels_of(new: Unroll, tasks: Sequence[str], frames: int) -> list[Label]:
    """Return the labels of the unrolls in `new`, played after `frames` had been granted.

    [] where the tasks are unknown.
    """
    returns = new.reward.sum(axis=1).tolist() if tasks else []
    return [Label(task, frames, total) for task, total in zip(tasks, returns, strict=True)]
