"""Stacking and clipping: the same in acting and learning."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clearl.acting.preprocess import cleared, clip_reward, push_frames, stack_frames, stack_indices


def numbered(*values: int) -> np.ndarray:
    """Frames [1, N, 1] that hold their own number."""
    return np.array(values, np.uint8).reshape(1, -1, 1)


def test_a_stack_of_one_is_the_frames_themselves() -> None:
    frames = numbered(1, 2, 3)
    assert stack_frames(frames, np.zeros((1, 3), bool), 1) is frames
    newest = frames[:, 2]
    assert push_frames(frames[:, 1], newest, np.zeros(1, bool)) is newest


def test_stacks_hold_the_last_frames_oldest_first() -> None:
    stacked = stack_frames(numbered(1, 2, 3, 4, 5), np.zeros((1, 5), bool), 3)
    assert stacked[0].tolist() == [[1, 2, 3], [2, 3, 4], [3, 4, 5]]


def test_an_episode_repeats_its_first_frame_and_never_sees_the_one_before() -> None:
    first = np.array([[False, False, False, True, False, False]])
    stacked = stack_frames(numbered(1, 2, 3, 4, 5, 6), first, 3)
    assert stacked[0].tolist() == [[1, 2, 3], [4, 4, 4], [4, 4, 5], [4, 5, 6]]


def test_an_episode_that_began_in_the_context_is_respected() -> None:
    first = np.array([[False, True, False, False]])
    assert stack_frames(numbered(1, 2, 3, 4), first, 3)[0].tolist() == [[2, 2, 3], [2, 3, 4]]


@pytest.mark.parametrize("stack", [2, 3, 4, 8])
@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 1), ("uint8", 2), ("bool", 1), ("float32", 1)])
def test_every_kind_of_frame_is_stacked_as_the_indices_say(stack: int, dtype: str, channels: int) -> None:
    """Stacks of bytes are made in another way than the rest."""
    rng = np.random.default_rng(stack)
    frames = rng.integers(0, 256, (5, 12 + stack, channels, 6, 7)).astype(dtype)
    first = rng.random((5, 12 + stack)) < 0.2
    indices = stack_indices(first, stack)
    expected = frames[np.arange(5)[:, None, None], indices].reshape(5, 13, stack * channels, 6, 7)
    stacked = stack_frames(frames, first, stack)
    np.testing.assert_array_equal(stacked, expected)
    pushed = stack_frames(frames[:, :stack], first[:, :stack], stack)[:, 0]
    for step in range(13):
        np.testing.assert_array_equal(pushed, expected[:, step])
        assert pushed.strides == stacked[:, step].strides, "acting has to lie in memory as learning does"
        if step < 12:
            pushed = push_frames(pushed, frames[:, step + stack], first[:, step + stack])


def test_image_stacks_fold_into_the_channels() -> None:
    frames = np.arange(2 * 5 * 3 * 4 * 4).reshape(2, 5, 3, 4, 4).astype(np.float32)
    stacked = stack_frames(frames, np.zeros((2, 5), bool), 2)
    assert stacked.shape == (2, 4, 6, 4, 4)
    np.testing.assert_array_equal(stacked[1, 2, :3], frames[1, 2])
    np.testing.assert_array_equal(stacked[1, 2, 3:], frames[1, 3])


def test_stacks_lie_in_memory_as_the_learner_wants_them() -> None:
    """Time first and channels last: nothing has to be turned around on the way to the convolutions."""
    frames = np.zeros((3, 9, 1, 6, 5), np.uint8)
    stacked = torch.from_numpy(stack_frames(frames, np.zeros((3, 9), bool), 4).swapaxes(0, 1))
    assert stacked.shape == (6, 3, 4, 6, 5)
    assert stacked.flatten(0, 1).data_ptr() == stacked.data_ptr()
    assert stacked.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("unit", [-1.0, -0.5, 0.5, 1.0]),
        ("none", [-7.0, -0.5, 0.5, 10.0]),
        ("soft_asymmetric", [-1.5 * np.tanh(1.4), -1.5 * np.tanh(0.1), 5 * np.tanh(0.1), 5 * np.tanh(2.0)]),
    ],
)
def test_reward_clipping(kind: str, expected: list[float]) -> None:
    clipped = clip_reward(np.array([-7.0, -0.5, 0.5, 10.0], np.float32), kind)
    assert clipped.dtype == np.float32
    np.testing.assert_allclose(clipped, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (2,), (1, 2)])
@pytest.mark.parametrize("began", [(), (1,), (0, 1, 2)])
def test_nothing_is_carried_into_an_episode_that_begins(shape: tuple[int, ...], began: tuple[int, ...]) -> None:
    last, first = (
        np.arange(1.0, 1 + 3 * np.prod(shape, dtype=int), dtype=np.float32).reshape(3, *shape),
        np.zeros(3, bool),
    )
    first[list(began)] = True
    kept, before = cleared(last, first), last.copy()
    assert not kept[first].any()
    np.testing.assert_array_equal(kept[~first], before[~first])
    last[:] = -1  # it views an unroll that is filled again
    np.testing.assert_array_equal(kept[~first], before[~first])
