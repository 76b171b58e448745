"""A shard on disk, whatever happens to it: what it holds is exactly what the law says."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clearl.replay.codec import Codec
from clearl.replay.disk import DiskStore
from clearl.replay.shard import ReplayShard
from clearl.seeding import derive, unroll_numbers
from clearl.spaces import discrete_spec
from clearl.unroll import Unroll, UnrollLayout

LAYOUT = UnrollLayout(discrete_spec((3,), "uint8", 2), 2)


def stamped(sequence: int, life: int) -> Unroll:
    return replace(LAYOUT.empty(1)[0], last_action=np.array(sequence), last_reward=np.array(life, np.float32))


def open_shard(directory: Path, capacity: int, slot: int) -> ReplayShard:
    store = DiskStore(directory, waste_share=0.3, segment_nbytes=1500)
    return ReplayShard(codec=Codec(LAYOUT), capacity_unrolls=capacity, seed=7, slot=slot, store=store)


def top(capacity: int, slot: int, count: int) -> list[int]:
    numbers = unroll_numbers(derive(7, "reservoir", slot), np.arange(count))
    return sorted(np.argsort(numbers)[::-1][:capacity].tolist())


def contents(shard: ReplayShard) -> dict[int, int]:
    """Sequence to life, read back through the codec from where the index points."""
    found = {}
    for position in range(shard._reservoir.held):
        row = shard.codec.decode(memoryview(shard._store.get(position))[32:])
        found[int(row.last_action)] = int(row.last_reward)
        assert int(row.last_action) == int(shard._reservoir.sequences[position])
    return found


STEP = st.one_of(
    st.tuples(st.just("insert"), st.integers(1, 60)),
    st.tuples(st.just("checkpoint"), st.just(0)),
    st.tuples(st.just("floor"), st.floats(0, 1)),
    st.tuples(st.just("reopen"), st.just(0)),
    st.tuples(st.just("back"), st.floats(0, 1)),
)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(0, 9), st.lists(STEP, min_size=5, max_size=25))
def test_any_history_of_inserts_floors_and_restores_is_exact(capacity, slot, steps):
    with tempfile.TemporaryDirectory() as directory:
        shard = open_shard(Path(directory), capacity, slot)
        floor, life, checkpoints = 0, 0, [0]
        author: dict[int, int] = {}  # which life wrote each sequence number last
        for action, amount in steps:
            if action == "insert":
                for _ in range(int(amount)):
                    author[shard.next_sequence] = life
                    shard.insert(stamped(shard.next_sequence, life))
            elif action == "checkpoint":
                shard.sync()
                checkpoints.append(shard.next_sequence)
            elif action == "floor":
                floor = max(floor, checkpoints[int(amount * (len(checkpoints) - 1))])
                shard.set_floor(floor)
            else:
                count = shard.next_sequence
                target = count if action == "reopen" else floor + int(amount * (count - floor))
                shard.close()
                shard = open_shard(Path(directory), capacity, slot)
                assert shard.recovered_next_sequence() <= count
                shard.restore(target)
                checkpoints = [c for c in checkpoints if c <= target]
                life += 1
            expected = top(capacity, slot, shard.next_sequence)
            assert shard.sequences().tolist() == expected
            assert contents(shard) == {sequence: author[sequence] for sequence in expected}
            assert shard.quarantined == 0 and shard.counters()["lost"] == 0
        shard.close()


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 30), st.integers(0, 400), st.data())
def test_damage_anywhere_costs_the_record_that_it_hits_and_no_other(capacity, count, data):
    with tempfile.TemporaryDirectory() as directory:
        shard = open_shard(Path(directory), capacity, 0)
        for sequence in range(count + 1):
            shard.insert(stamped(sequence, 0))
        shard.close()
        files = sorted(Path(directory).glob("*.seg"))
        path = files[data.draw(st.integers(0, len(files) - 1))]
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(bytes(content))

        shard = open_shard(Path(directory), capacity, 0)
        shard.restore(count + 1)
        expected = top(capacity, 0, count + 1)
        held = shard.sequences().tolist()
        assert set(held) <= set(expected) and len(expected) - len(held) <= 1
        assert shard.quarantined + (shard.counters()["torn_bytes"] > 0) == 1
        for _ in range(20):
            sample = shard.sample()
            assert sample is None or int(sample.last_action) in held
        shard.close()
