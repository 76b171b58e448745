"""From pairs to batches: one unroll of each pair, no slot twice, time first."""

from __future__ import annotations

import numpy as np

from clearl.intake import Intake, Pairs, make_batch
from clearl.replay.mixing import Mixer
from clearl.types import EnvSpec, Rows, UnrollLayout

LAYOUT = UnrollLayout(EnvSpec((2,), "float32", 3), unroll_steps=4)


def tagged(slots: list[int], tag: float) -> Rows:
    """Unrolls whose rewards tell the slot and whether they are new or replayed."""
    rows = LAYOUT.empty(len(slots))
    rows["reward"][:] = np.array(slots, np.float32)[:, None] + tag
    rows["mask"][:] = True
    return rows


def pairs(slots: list[int], version: int = 0, has_replay: bool = True) -> Pairs:
    return Pairs(slots, tagged(slots, 0.0), tagged(slots, 0.5), np.full(len(slots), has_replay), version)


def an_intake(batch: int, fraction: float = 0.5) -> Intake:
    return Intake(LAYOUT, batch, Mixer(fraction, seed=1), discount=0.9, reward_clip="none")


def test_one_of_each_pair_and_the_flag_says_which() -> None:
    ((batch, version),) = an_intake(4).take(pairs([0, 1, 2, 3], version=7))
    assert version == 7
    assert sorted(batch.reward[0].floor().int().tolist()) == [0, 1, 2, 3]
    assert ((batch.reward[0] % 1 == 0.5) == batch.is_replay).all()
    assert int(batch.is_replay.sum()) == 2


def test_without_a_past_the_new_unroll_is_used() -> None:
    ((batch, _),) = an_intake(4, fraction=1.0).take(pairs([0, 1, 2, 3], has_replay=False))
    assert not batch.is_replay.any() and batch.reward[0].tolist() == [0, 1, 2, 3]


def test_batches_span_workers_and_no_slot_is_in_one_twice() -> None:
    intake = an_intake(4)
    assert list(intake.take(pairs([0, 1, 2]))) == []
    assert not intake.accepts(pairs([1, 5, 6]))
    assert intake.accepts(pairs([3, 0, 1, 2]))  # 3 fills the batch; the others open the next
    ((batch, _),) = intake.take(pairs([3, 0, 1, 2]))
    assert sorted(batch.reward[0].floor().int().tolist()) == [0, 1, 2, 3]


def test_a_batch_keeps_its_numbers_when_the_pairs_are_overwritten() -> None:
    sent = pairs([0, 1])
    ((batch, _),) = an_intake(2, fraction=0.0).take(sent)
    sent.new["reward"][:] = -1
    assert batch.reward[0].tolist() == [0, 1]


def test_the_waiting_unrolls_can_be_saved_and_restored() -> None:
    one, two = an_intake(4), an_intake(4)
    list(one.take(pairs([0, 1, 2], version=3)))
    two.mixer.restore(one.mixer.state())
    two.restore(*one.state())
    ((batch, version),), ((again, version_again),) = one.take(pairs([3], 5)), two.take(pairs([3], 5))
    assert version == version_again == 3.5
    assert all((a == b).all() for a, b in zip(batch, again, strict=True))


def test_rows_become_time_major_with_last_action_and_reward_reset_at_episode_starts() -> None:
    rows = LAYOUT.empty(1)
    rows["action"][0] = [1, 2, 1, 2]
    rows["reward"][0] = [5, 6, 7, 8]
    rows["last_action"][0], rows["last_reward"][0] = 2, 9
    rows["first"][0] = [False, False, True, False, False]
    rows["terminated"][0] = [False, True, False, False]
    batch = make_batch(rows, np.array([False]), LAYOUT, 0.9, "none")
    assert batch.last_action[:, 0].tolist() == [2, 1, 0, 1, 2]
    assert batch.last_reward[:, 0].tolist() == [9, 5, 0, 7, 8]
    np.testing.assert_allclose(batch.discount[:, 0], [0.9, 0.0, 0.9, 0.9])
    assert batch.observation.shape == (5, 1, 2) and batch.behaviour_logits.shape == (4, 1, 3)
