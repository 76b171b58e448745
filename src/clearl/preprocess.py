"""What happens to frames and rewards between the environment and the network, the same in acting and in learning."""

from __future__ import annotations

import numpy as np

_WORDS = (2, 4, 8)  # bytes of the unsigned integers there are


def stack_indices(first: np.ndarray, stack: int) -> np.ndarray:
    """Which frames make up each observation.

    Args: `first` [B, T+stack] marks frames that open an episode. Returns [B, T+1, stack]: for each observation the
    positions of its frames, oldest first; before the start of an episode its first frame is repeated.
    """
    length = first.shape[1]
    positions = np.arange(length)
    starts = np.maximum.accumulate(np.where(first, positions, 0), axis=1)
    newest = positions[stack - 1 :]
    window = newest[:, None] - np.arange(stack - 1, -1, -1)
    return np.maximum(window[None], starts[:, stack - 1 :, None])


def stack_frames(frames: np.ndarray, first: np.ndarray, stack: int) -> np.ndarray:
    """Observations [B, T+1, stack*C, ...] out of frames [B, T+stack, C, ...] that were stored once.

    A stack lies in memory time first and channels last, as batches and convolutions want it: putting it there at once
    takes a third of the time that stacking and turning it around takes. A stack of one is the frames themselves.
    """
    if stack == 1:
        return frames
    indices = stack_indices(first, stack)
    (batch, steps), channels = indices.shape[:2], frames.shape[2]
    stacked = np.empty((steps, batch, *frames.shape[3:], stack * channels), frames.dtype)
    every, slides = np.arange(batch), channels * frames.itemsize == 1 and stack in _WORDS
    for step in range(1 if slides else steps):
        for place in range(stack):
            chosen = frames[every, indices[:, step, place]]
            stacked[step, ..., place * channels : (place + 1) * channels] = np.moveaxis(chosen, 1, -1)
    if slides:
        _slide(stacked, frames[:, stack:, 0], first[:, stack:])
    return np.moveaxis(stacked, (0, -1), (1, 2))


def _slide(stacked: np.ndarray, newest: np.ndarray, first: np.ndarray) -> None:
    """Fill `stacked` [T+1, B, ..., stack] from its first step on, given the `newest` [B, T, ...] byte of each stack.

    All bytes of a stack are one number, oldest lowest: shifting it makes room for the newest, for the whole batch in a
    few passes. Putting each byte to its place takes more than twice the time.
    """
    stack = stacked.shape[-1]
    words = stacked.view(f"<u{stack}")[..., 0]
    byte, highest = words.dtype.type(8), words.dtype.type(1 << 8 * (stack - 1))
    all_the_same = words.dtype.type(sum(1 << 8 * place for place in range(stack)))
    moved = np.empty_like(words[0])
    for step in range(newest.shape[1]):
        after = words[step + 1]
        np.multiply(newest[:, step], highest, out=moved, dtype=words.dtype)
        np.right_shift(words[step], byte, out=after)
        np.bitwise_or(after, moved, out=after)
        for row in np.flatnonzero(first[:, step]):
            np.multiply(newest[row, step], all_the_same, out=after[row], dtype=words.dtype)


def clip_reward(reward: np.ndarray, kind: str) -> np.ndarray:
    """Rewards as the learner sees them: `unit` [-1, 1], `soft_asymmetric` as DMLab-30, or `none`."""
    if kind == "unit":
        return np.minimum(np.maximum(reward, np.float32(-1)), np.float32(1))  # np.clip takes four times as long
    if kind == "soft_asymmetric":
        squeezed = 5.0 * np.tanh(reward / 5.0)
        return np.where(reward < 0, 0.3 * squeezed, squeezed).astype(np.float32)
    return reward
