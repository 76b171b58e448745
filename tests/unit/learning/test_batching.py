"""From pairs to batches: one unroll of each pair, no slot twice, time first."""

from __future__ import annotations

import numpy as np
import pytest

from clearl.errors import CorruptFileError
from clearl.learning.batching import Intake, Pairs, make_batch
from clearl.replay.codec import Codec
from clearl.replay.mixing import BothMixer, EitherMixer
from clearl.spaces import discrete_spec
from clearl.types import Batch
from clearl.unroll import Unroll, UnrollLayout

LAYOUT = UnrollLayout(discrete_spec((2,), "float32", 3), unroll_steps=4)
CODEC = Codec(LAYOUT)


def tagged(slots: list[int], tag: float) -> Unroll:
    """Unrolls whose rewards tell the slot and whether they are new or replayed."""
    rows = LAYOUT.empty(len(slots))
    rows.reward[:] = np.array(slots, np.float32)[:, None] + tag
    rows.mask[:] = True
    return rows


def pairs(slots: list[int], version: int = 0, has_replay: bool = True, draws: int = 1) -> Pairs:
    each = [slot for slot in slots for _ in range(draws)]
    packed = list(CODEC.encode_each(tagged(each, 0.5), range(len(each))))
    return Pairs(slots, tagged(slots, 0.0), packed if has_replay else [None] * len(each), version)


def an_intake(batch: int, fraction: float = 0.5, ratio: float | None = None) -> Intake:
    mixer = EitherMixer(fraction, seed=1) if ratio is None else BothMixer(ratio, seed=1)
    return Intake(CODEC, batch, mixer, discount=0.9, reward_clip="none")


def batches(intake: Intake, taken: Pairs) -> list[tuple[Batch, float]]:
    return [intake.batch(staging) for staging in intake.take(taken)]


def test_one_of_each_pair_and_the_flag_says_which() -> None:
    ((batch, version),) = batches(an_intake(4), pairs([0, 1, 2, 3], version=7))
    assert version == 7
    assert sorted(batch.reward[0].floor().int().tolist()) == [0, 1, 2, 3]
    assert ((batch.reward[0] % 1 == 0.5) == batch.is_replay).all()
    assert int(batch.is_replay.sum()) == 2


def test_without_a_past_the_new_unroll_is_used() -> None:
    ((batch, _),) = batches(an_intake(4, fraction=1.0), pairs([0, 1, 2, 3], has_replay=False))
    assert not batch.is_replay.any() and batch.reward[0].tolist() == [0, 1, 2, 3]


def test_batches_span_workers_and_no_slot_is_in_one_twice() -> None:
    intake = an_intake(4)
    assert batches(intake, pairs([0, 1, 2])) == []
    assert not intake.accepts([1, 5, 6])
    assert intake.accepts([3, 0, 1, 2])  # 3 fills the batch; the others open the next
    ((batch, _),) = batches(intake, pairs([3, 0, 1, 2]))
    assert sorted(batch.reward[0].floor().int().tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(("ratio", "on_top"), [(0.25, {1}), (0.6, {2, 3}), (1.0, {4}), (2.5, {10}), (4.0, {16})])
def test_both_takes_every_new_unroll_and_replays_on_top(ratio: float, on_top: set[int]) -> None:
    intake, made = an_intake(4, ratio=ratio), []
    for turn in range(12):
        slots = [3 * (turn % 2) + index for index in range(3)]
        made += batches(intake, pairs(slots, version=turn, draws=intake.mixer.draws))
    assert [round(version, 2) for _, version in made[:3]] == [0.25, 1.5, 2.75]  # of the new unrolls alone
    slots = [slot for batch, _ in made for slot in batch.reward[0][~batch.is_replay].tolist()]
    assert slots == [index % 6 for index in range(36)]
    assert {int(batch.is_replay.sum()) for batch, _ in made} == on_top
    assert sum(int(batch.is_replay.sum()) for batch, _ in made) == int(ratio * 36 + 1e-9)
    for batch, _ in made:
        again = batch.reward[0][batch.is_replay]
        assert (again % 1 == 0.5).all() and set(again.floor().int().tolist()) <= set(
            batch.reward[0][~batch.is_replay].int().tolist()
        )


def test_without_a_past_both_is_the_new_unrolls_alone() -> None:
    intake = an_intake(4, ratio=2.0)
    ((batch, _),) = batches(intake, pairs([0, 1, 2, 3], has_replay=False, draws=2))
    assert batch.reward[0].tolist() == [0, 1, 2, 3] and not batch.is_replay.any()
    ((batch, _),) = batches(intake, pairs([0, 1, 2, 3], draws=2))
    assert batch.reward[0].tolist()[:4] == [0, 1, 2, 3] and batch.is_replay.tolist() == [False] * 4 + [True] * 8


@pytest.mark.parametrize("ratio", [None, 0.75, 3.0])
def test_a_slot_that_is_in_the_open_batch_already_waits_in_another(ratio: float | None) -> None:
    one, two = an_intake(4, ratio=ratio), an_intake(4, ratio=ratio)
    draws = one.mixer.draws
    assert batches(one, pairs([0, 1], version=1, draws=draws)) == []
    assert not one.accepts([0, 1, 2])
    assert batches(one, pairs([0, 1, 2], version=2, draws=draws)) == []
    assert one.waiting_slots == [[0, 1, 2], [0, 1]]
    two.mixer.restore(one.mixer.state())
    two.restore(*one.state())
    assert two.waiting_slots == one.waiting_slots
    made = [batches(intake, pairs([3, 4, 2], version=3, draws=draws)) for intake in (one, two)]
    for (first, version), (second, again) in zip(*made, strict=True):
        assert version == again
        assert all((a == b).all() for a, b in zip(first, second, strict=True))
    pairs_of = [[int(slot) for slot in batch.reward[0].floor().tolist()[:4]] for batch, _ in made[0]]
    assert pairs_of == [[0, 1, 2, 3], [0, 1, 4, 2]]


def test_pairs_are_divided_among_batches_in_their_order() -> None:
    intake, expected, taken, replayed = an_intake(4), [], [], 0
    for turn in range(12):
        slots = [3 * (turn % 2) + index for index in range(3)]
        expected += slots
        for full in intake.take(pairs(slots)):
            batch, _ = intake.batch(full)
            taken += batch.reward[0].floor().int().tolist()
            assert ((batch.reward[0] % 1 == 0.5) == batch.is_replay).all()
            replayed += int(batch.is_replay.sum())
    assert taken == expected and replayed == 18


def test_pairs_for_several_batches_are_read_before_the_first_is_made() -> None:
    intake, sent = an_intake(2, fraction=0.0), pairs([0, 1, 2, 3, 4])
    for _ in range(2):
        full = intake.take(sent)
        kept, sent.new.reward[:] = sent.new.reward.copy(), -1
        assert [intake.batch(staging)[0].reward[0].tolist() for staging in full[:2]] == [[0, 1], [2, 3]]
        sent.new.reward[:] = kept
        intake.restore({name: rows[:0] for name, rows in intake.state()[0].items()}, [])


@pytest.mark.parametrize("frame", [(2,), (20, 20)])
def test_every_field_of_small_and_large_unrolls_comes_through(frame: tuple[int, ...]) -> None:
    layout = UnrollLayout(discrete_spec(frame, "float32", 3), unroll_steps=4, core_size=300)
    rng = np.random.default_rng(0)
    sides = (layout.empty(5), layout.empty(5))
    for rows in sides:
        for array in rows.named().values():
            array[:] = rng.integers(0, 2, array.shape)
    codec = Codec(layout)
    intake = Intake(codec, 4, EitherMixer(0.5, seed=1), discount=0.9, reward_clip="none")
    (full,) = intake.take(Pairs([4, 3, 2, 1, 0], sides[0], list(codec.encode_each(sides[1], range(5))), 0))
    waiting, slots = intake.state()
    assert slots == [0] and full.slots == [4, 3, 2, 1] and 0 < full.is_replay.sum() < 4
    for name in layout.fields:
        expected = np.stack([sides[int(full.is_replay[i])].named()[name][i] for i in range(4)])
        np.testing.assert_array_equal(full.unpack().rows.named()[name], expected)
        np.testing.assert_array_equal(waiting[name][0], sides[int(waiting["is_replay"][0])].named()[name][4])


def test_only_what_is_taken_is_unpacked() -> None:
    intake, sent = an_intake(4), pairs([0, 1, 2, 3])
    chosen = ~an_intake(4).mixer.choose(np.ones(4, bool), []).new
    broken = [payload if taken else b"not to be read" for payload, taken in zip(sent.replay, chosen, strict=True)]
    ((batch, _),) = batches(intake, Pairs(sent.slots, sent.new, broken, 0))
    assert batch.is_replay.tolist() == chosen.tolist()
    with pytest.raises(CorruptFileError, match="version"):
        batches(an_intake(4, fraction=1.0), Pairs(sent.slots, sent.new, broken, 0))


def test_a_batch_keeps_its_numbers_when_the_pairs_are_overwritten() -> None:
    sent = pairs([0, 1])
    ((batch, _),) = batches(an_intake(2, fraction=0.0), sent)
    sent.new.reward[:] = -1
    assert batch.reward[0].tolist() == [0, 1]


def test_what_is_replayed_is_kept_when_its_place_is_overwritten_before_the_batch_is_made() -> None:
    sent, intake = pairs([0, 1, 2]), an_intake(2, fraction=1.0)
    places = [bytearray(payload or b"") for payload in sent.replay]
    (full,) = intake.take(Pairs(sent.slots, sent.new, [memoryview(place) for place in places], 0))
    for place in places:
        place[:] = bytes(len(place))
    assert intake.batch(full)[0].reward[0].tolist() == [0.5, 1.5]
    assert intake.state()[0]["reward"][0].tolist() == [2.5] * 4


def test_the_waiting_unrolls_can_be_saved_and_restored() -> None:
    one, two = an_intake(4), an_intake(4)
    batches(one, pairs([0, 1, 2], version=3))
    two.mixer.restore(one.mixer.state())
    two.restore(*one.state())
    ((batch, version),), ((again, version_again),) = batches(one, pairs([3], 5)), batches(two, pairs([3], 5))
    assert version == version_again == 3.5
    assert all((a == b).all() for a, b in zip(batch, again, strict=True))


def test_rows_become_time_major_with_last_action_and_reward_reset_at_episode_starts() -> None:
    rows = LAYOUT.empty(1)
    rows.action[0] = [1, 2, 1, 2]
    rows.reward[0] = [5, 6, 7, 8]
    rows.last_action[0], rows.last_reward[0] = 2, 9
    rows.first[0] = [False, False, True, False, False]
    rows.terminated[0] = [False, True, False, False]
    batch = make_batch(rows, np.array([False]), LAYOUT, 0.9, "none")
    assert batch.last_action[:, 0].tolist() == [2, 1, 0, 1, 2]
    assert batch.last_reward[:, 0].tolist() == [9, 5, 0, 7, 8]
    np.testing.assert_allclose(batch.discount[:, 0], [0.9, 0.0, 0.9, 0.9])
    assert batch.observation.shape == (5, 1, 2) and batch.behaviour_policy.shape == (4, 1, 3)
