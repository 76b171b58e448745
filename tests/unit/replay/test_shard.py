"""A shard over the RAM store: what it keeps, what it samples, and that both follow from the counters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from clearl.errors import CorruptFileError
from clearl.replay.codec import Codec
from clearl.replay.framing import pack_record
from clearl.replay.history import Earlier
from clearl.replay.shard import ReplayShard, insert_each
from clearl.replay.store import RamStore, open_store
from clearl.seeding import derive, unroll_numbers


@pytest.fixture
def make_shard(tiny):
    def make(capacity: int, *, seed: int = 1, slot: int = 0) -> ReplayShard:
        return ReplayShard(codec=Codec(tiny), capacity_unrolls=capacity, seed=seed, slot=slot, store=RamStore())

    return make


@pytest.fixture
def stamped(tiny):
    """An unroll that carries its sequence number."""

    def make(sequence: int):
        return replace(tiny.empty(1)[0], last_action=np.array(sequence))

    return make


def test_it_keeps_the_top_of_its_own_numbers_and_gives_back_what_was_put_in(make_shard, stamped):
    shard = make_shard(16, seed=4, slot=9)
    for sequence in range(200):
        assert shard.insert(stamped(sequence)) == sequence
    numbers = unroll_numbers(derive(4, "reservoir", 9), np.arange(200))
    assert shard.sequences().tolist() == sorted(np.argsort(numbers)[-16:].tolist())
    seen = {int(sample.last_action) for _ in range(400) if (sample := shard.sample()) is not None}
    assert seen == set(shard.sequences().tolist())


def test_there_is_nothing_to_replay_before_the_first_insert_and_always_something_after_it(make_shard, stamped):
    shard = make_shard(1)
    assert shard.sample() is None
    for sequence in range(50):
        shard.insert(stamped(sequence))
        sample = shard.sample()
        assert sample is not None and [int(sample.last_action)] == shard.sequences().tolist()


def test_sampling_is_uniform(make_shard, stamped):
    shard = make_shard(20)
    for sequence in range(300):
        shard.insert(stamped(sequence))
    past = shard.sequences().tolist()
    drawn = [int(sample.last_action) for _ in range(4000) if (sample := shard.sample()) is not None]
    counts = [drawn.count(sequence) for sequence in past]
    assert sum(counts) == 4000
    assert stats.chisquare(counts).pvalue > 1e-3
    assert len(set(counts)) > 3


def test_over_a_run_the_replayed_unrolls_are_uniform_over_the_past(make_shard, stamped):
    """One sample at the end of many short runs: every unroll before is as likely as any other."""
    counts = np.zeros(30)
    for slot in range(400):
        shard = make_shard(8, slot=slot)
        for sequence in range(30):
            shard.insert(stamped(sequence))
        sample = shard.sample()
        assert sample is not None
        counts[int(sample.last_action)] += 1
    assert stats.chisquare(counts).pvalue > 1e-3


def test_the_same_seed_gives_the_same_samples_and_another_slot_others(make_shard, stamped):
    def history(seed: int, slot: int) -> list[int]:
        shard, samples = make_shard(8, seed=seed, slot=slot), []
        for sequence in range(100):
            shard.insert(stamped(sequence))
            sample = shard.sample()
            samples.append(-1 if sample is None else int(sample.last_action))
        return samples

    assert history(1, 0) == history(1, 0)
    assert history(1, 0) != history(1, 1) and history(1, 0) != history(2, 0)


def test_refused_unrolls_are_not_encoded(make_shard, stamped, monkeypatch):
    shard = make_shard(4)
    for sequence in range(4):
        shard.insert(stamped(sequence))
    encoded = []
    encode = shard.codec.encode_each
    monkeypatch.setattr(shard.codec, "encode_each", lambda rows, at: encoded.extend(at) or encode(rows, at))
    for sequence in range(4, 400):
        shard.insert(stamped(sequence))
    # Expected: C * (H_400 - H_4) = 18; the bound is generous, 396 is not.
    assert 4 < len(encoded) < 40


def test_many_shards_at_once_do_what_each_does_alone(make_shard, stamped, tiny):
    together, alone = [[make_shard(3, slot=slot) for slot in range(5)] for _ in range(2)]
    rows = tiny.empty(5)
    for sequence in range(40):
        for slot, shard in enumerate(alone):
            row = stamped(100 * slot + sequence)
            shard.insert(row)
            for name, array in row.named().items():
                rows.named()[name][slot] = array
        insert_each(together, rows)
        assert [shard.draw() for shard in together] == [shard.draw() for shard in alone]
    for left, right in zip(together, alone, strict=True):
        assert left.sequences().tolist() == right.sequences().tolist()


def test_a_damaged_record_is_never_sampled_and_its_place_heals(make_shard, stamped):
    shard = make_shard(6)
    for sequence in range(6):
        shard.insert(stamped(sequence))
    bad = bytearray(shard._store.get(2))
    bad[-1] ^= 4
    shard._store.put(2, bytes(bad))
    drawn = {int(sample.last_action) for _ in range(200) if (sample := shard.sample()) is not None}
    assert drawn == {0, 1, 3, 4, 5} and shard.quarantined == 1 and shard.held == 5
    assert shard.counters()["lost"] == 1
    for sequence in range(6, 300):
        shard.insert(stamped(sequence))
    assert shard.counters()["lost"] == 0 and shard.held == 6 and shard.quarantined == 1


def test_a_whole_record_that_is_no_unroll_of_this_layout_is_never_drawn(make_shard, stamped):
    shard = make_shard(3)
    for sequence in range(3):
        shard.insert(stamped(sequence))
    sequence, number = shard._reservoir.at(1)
    payload = bytearray(shard.codec.encode(stamped(1)))
    payload[0] += 1  # another version of the format
    shard._store.put(1, pack_record(0, sequence, number, bytes(payload)))
    drawn = {int(sample.last_action) for _ in range(50) if (sample := shard.sample()) is not None}
    assert drawn == {0, 2} and shard.quarantined == 1


def test_a_ram_shard_restored_in_another_process_starts_empty_but_in_step(make_shard, stamped):
    lived, fresh = make_shard(64), make_shard(64)
    for sequence in range(500):
        lived.insert(stamped(sequence))
    fresh.restore(500)
    assert fresh.next_sequence == 500 and fresh.held == 0 and fresh.sample() is None
    for sequence in range(500, 900):
        lived.insert(stamped(sequence))
        fresh.insert(stamped(sequence))
    new = [s for s in lived.sequences().tolist() if s >= 500]
    assert fresh.sequences().tolist() == new
    drawn = {int(sample.last_action) for _ in range(600) if (sample := fresh.sample()) is not None}
    assert drawn == set(new)


def test_a_ram_shard_goes_back_as_far_as_its_records_reach(make_shard, stamped):
    shard, expected = make_shard(50), make_shard(50)
    for sequence in range(40):
        shard.insert(stamped(sequence))
    for sequence in range(25):
        expected.insert(stamped(sequence))
    shard.restore(25)
    assert shard.sequences().tolist() == expected.sequences().tolist() == list(range(25))
    a, b = shard.sample(), expected.sample()
    assert a is not None and b is not None and a.last_action == b.last_action
    with pytest.raises(CorruptFileError):
        shard.restore(-1)


def test_bytes_are_counted(make_shard, stamped):
    shard = make_shard(10)
    for sequence in range(100):
        shard.insert(stamped(sequence))
    assert shard.nbytes == sum(len(shard._store.get(position)) for position in range(10))
    assert shard.counters()["inserted"] == 100 and shard.counters()["bytes"] == shard.nbytes


@pytest.mark.parametrize(("first", "then"), [(20, 20), (20, 8), (20, 50)])
def test_a_shard_that_changed_its_capacity_comes_back_as_it_was(tmp_path, tiny, stamped, first, then):
    """From its next sequence and the capacities that it had: kept is what the law says over the whole life."""

    def shard(capacity: int, earlier=()) -> ReplayShard:
        store = open_store("disk", tmp_path / "slot", waste_share=0.5)
        return ReplayShard(codec=Codec(tiny), capacity_unrolls=capacity, seed=3, slot=0, store=store, earlier=earlier)

    one = shard(first)
    for number in range(60):
        one.insert(stamped(number))
    one.sync()
    one.close()
    two = shard(then, [Earlier(first, 60)])
    two.restore(60)
    for number in range(60, 130):
        two.insert(stamped(number))
    kept, drawn = two.sequences().tolist(), [two.draw() for _ in range(5)]
    numbers = unroll_numbers(derive(3, "reservoir", 0), np.arange(130))
    assert kept == sorted(np.argsort(numbers)[-len(kept) :].tolist())
    assert len(kept) == {20: 20, 8: 8, 50: len(kept)}[then] and len(kept) >= min(first, then)
    two.sync()
    two.close()
    three = shard(then, [Earlier(first, 60)])
    three.restore(130)
    assert three.sequences().tolist() == kept
    assert [three.draw() for _ in range(5)] == drawn
    three.close()
