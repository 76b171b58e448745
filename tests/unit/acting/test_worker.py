"""The two halves of a pair."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clearl.acting.worker import Worker
from clearl.replay.codec import Codec
from clearl.replay.shard import ReplayShard
from clearl.replay.store import RamStore
from clearl.spaces import discrete_spec
from clearl.unroll import UnrollLayout

LAYOUT = UnrollLayout(discrete_spec((1,), "float32", 2), 1)
SLOTS = 3


def make(capacity: int | None) -> tuple[Worker, Codec]:
    codec, actor = Codec(LAYOUT), SimpleNamespace(slots=list(range(SLOTS)))
    shards = [
        ReplayShard(codec=codec, capacity_unrolls=capacity, seed=1, slot=slot, store=RamStore())
        for slot in actor.slots
        if capacity is not None
    ]
    worker_actor: Any = actor
    return Worker(worker_actor, shards), codec


@pytest.mark.parametrize("capacity", [1, 4, 1000])
def test_each_slot_recalls_one_of_its_own_past_and_never_the_one_at_hand(capacity: int) -> None:
    worker, codec = make(capacity)
    new, recalled = LAYOUT.empty(SLOTS), set[int]()
    assert worker.recall() == [None] * SLOTS
    for sequence in range(60):
        new.last_action[:] = 100 * np.arange(SLOTS) + sequence
        payloads = worker.recall()
        for slot, payload in enumerate(payloads):
            if sequence == 0:
                assert payload is None
                continue
            assert payload is not None
            past = int(codec.decode(payload).last_action) - 100 * slot
            assert 0 <= past < sequence
            recalled.add(sequence - past)
        worker.remember(new)
    assert 1 in recalled, "the unroll just before is as good as any other"
    assert worker.replay_counters()["held"] == SLOTS * min(capacity, 60)


def test_without_replay_every_slot_recalls_nothing() -> None:
    worker, _ = make(None)
    worker.remember(LAYOUT.empty(SLOTS))
    assert worker.recall() == [None] * SLOTS
