"""Records and masks on their way: stacked, stored, batched, checkpointed; masks exact in acting and in the losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from clearl.acting.preprocess import as_tensor, copied, observe, push
from clearl.acting.stepper import Stepper
from clearl.learning.batching import make_batch
from clearl.methods.clear import Clear
from clearl.methods.fisher_memory import FisherMemory
from clearl.nets.network import build_network
from clearl.replay.codec import Codec
from clearl.spaces import MASK_FIELD, ActionSpec, ObservationSpec, PartSpec, TaskSpec
from clearl.unroll import Unroll, UnrollLayout, as_plain, from_plain

PARTS = {"eye": PartSpec((1, 3, 3), "uint8"), "ear": PartSpec((2,), "float32")}
SPEC = TaskSpec(ObservationSpec(PARTS, stack=3, mask_size=4), ActionSpec.discrete(4))
STEPS, SLOTS = 6, 3


def an_unroll(spec: TaskSpec = SPEC) -> Unroll:
    rng, unroll = np.random.default_rng(0), UnrollLayout(spec, STEPS).empty(SLOTS)
    unroll.frames["eye"][:] = rng.integers(0, 256, unroll.frames["eye"].shape)
    unroll.frames["ear"][:] = rng.normal(size=unroll.frames["ear"].shape)
    unroll.frames[MASK_FIELD] = rng.random(unroll.frames[MASK_FIELD].shape) < 0.6
    unroll.frames[MASK_FIELD][..., 2] = True
    unroll.first[:, [2, 5]] = True
    unroll.mask[:], unroll.mask[0, 3], unroll.valid[:], unroll.action[:] = True, False, True, 2
    unroll.policy[:] = rng.normal(size=unroll.policy.shape)
    return unroll


def test_pushing_step_by_step_gives_what_stacking_at_once_gives() -> None:
    unroll, spec = an_unroll(), SPEC.observation
    whole = observe(unroll.frames, unroll.first, spec)
    assert whole["eye"].shape == (SLOTS, STEPS + 1, 3, 3, 3) and whole["ear"].shape == (SLOTS, STEPS + 1, 2)
    now = observe(unroll.frames[:, :3], unroll.first[:, :3], spec)[:, 0]
    for t in range(STEPS):
        np.testing.assert_array_equal(now, whole[:, t])
        now = push(now, unroll.frames[:, t + 3], unroll.first[:, t + 3], spec)


def test_records_are_packed_and_checkpointed_bit_for_bit() -> None:
    unroll = an_unroll()
    codec = Codec(UnrollLayout(SPEC, STEPS))
    back = codec.decode(codec.encode(unroll[1]))
    assert back.frames.tobytes() == unroll.frames[1].tobytes()
    plain = as_plain(unroll.frames)
    assert plain.dtype == np.uint8 and from_plain(plain, unroll.frames.dtype).tobytes() == unroll.frames.tobytes()


def test_a_batch_has_the_mask_of_every_state_and_of_its_task() -> None:
    unroll = an_unroll()
    batch = make_batch(unroll, np.zeros(SLOTS, bool), UnrollLayout(SPEC, STEPS), 0.9, "none")
    expected = unroll.frames[MASK_FIELD][:, 2:-1] & unroll.mask[:, None]
    assert batch.mask.shape == (STEPS, SLOTS, 4) and np.array_equal(batch.mask.numpy(), expected.swapaxes(0, 1))
    assert not batch.mask[:, 0, 3].any()


def test_masks_of_states_are_exact_in_entropy_and_cloning() -> None:
    """Logits behind a mask may be anything: no term of the loss changes, and none has a gradient there."""
    unroll = an_unroll()
    layout = UnrollLayout(SPEC, STEPS)
    network = build_network(SPEC, torso="auto", lstm=False, lstm_size=1, seed=0)
    batch = make_batch(unroll, np.ones(SLOTS, bool), layout, 0.9, "none")
    changed = replace(batch, behaviour_policy=torch.where(batch.mask, batch.behaviour_policy, 77.0))
    one, two = Clear().losses(network, batch), Clear().losses(network, changed)
    assert all(torch.equal(one[name], two[name]) and torch.isfinite(one[name]) for name in one)
    assert one["policy_cloning"] > 0


def test_the_stepper_takes_no_action_that_a_state_forbids() -> None:
    network = build_network(SPEC, torso="auto", lstm=False, lstm_size=1, seed=0)
    stepper = Stepper(network, SPEC, 50, reward_clip="none")
    frames = np.zeros(50, SPEC.observation.frame_dtype)
    frames[MASK_FIELD][:, 1] = True
    frames[MASK_FIELD][:25, 3] = True
    stepper.begin(slice(None), frames)
    noise = network.head.noise(np.random.default_rng(0), np.ones((50, 4), bool), 1)[0]
    with torch.inference_mode():
        action = stepper.decide(noise).action
    assert set(action[:25].tolist()) == {1, 3} and set(action[25:].tolist()) == {1}


def test_a_fisher_uses_the_mask_of_its_own_step() -> None:
    unroll = an_unroll()
    batch = make_batch(unroll, np.zeros(SLOTS, bool), UnrollLayout(SPEC, STEPS), 0.9, "none")
    memory = FisherMemory(batches=1, steps=8, seed=0)
    memory.add(batch, visit=0)
    windows = memory.windows()
    allowed = {bytes(mask) for mask in batch.mask.reshape(-1, 4).numpy()}
    assert windows["mask"].shape == (8, 4) and all(bytes(mask) in allowed for mask in windows["mask"].numpy())
    dtype = SPEC.observation.record_dtype
    shown = from_plain(windows["observation"].squeeze(1).numpy(), dtype)
    expected = shown[MASK_FIELD].copy()
    same = (windows["mask"].numpy() == expected) | ~np.array([True, True, True, False])
    assert same.all(), "each window has the mask that stands in its own observation"


def test_the_bytes_between_the_fields_of_a_copied_record_are_zeros() -> None:
    dtype = np.dtype([("a", "float32", (1,)), ("b", "bool", (1,))], align=True)
    assert dtype.itemsize == 8
    shown = np.full((6, 8), 255, np.uint8).view(dtype)[:, 0].reshape(2, 3).swapaxes(0, 1)
    whole = as_tensor(copied(shown))
    assert (whole[..., 5:] == 0).all() and (whole[..., :4] == 255).all()


def test_one_step_of_the_records_of_unrolls_becomes_a_tensor_without_a_copy() -> None:
    dtype = np.dtype([("a", "float32", (2,)), ("b", "float32", (1,))])
    frames = np.zeros((3, 5), dtype)
    tensor = as_tensor(frames[:, 2])
    frames["b"][:, 2] = 0.5
    assert tensor.shape == (3, 12) and tensor[:, 8:].view(torch.float32).tolist() == [[0.5]] * 3
