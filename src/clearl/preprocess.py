"""What happens to frames and rewards between the environment and the network, the same in acting and in learning."""

from __future__ import annotations

import numpy as np


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
    every = np.arange(batch)
    for step in range(steps):
        for place in range(stack):
            chosen = frames[every, indices[:, step, place]]
            stacked[step, ..., place * channels : (place + 1) * channels] = np.moveaxis(chosen, 1, -1)
    return np.moveaxis(stacked, (0, -1), (1, 2))


def clip_reward(reward: np.ndarray, kind: str) -> np.ndarray:
    """Rewards as the learner sees them: `unit` [-1, 1], `soft_asymmetric` as DMLab-30, or `none`."""
    if kind == "unit":
        return np.minimum(np.maximum(reward, np.float32(-1)), np.float32(1))  # np.clip takes four times as long
    if kind == "soft_asymmetric":
        squeezed = 5.0 * np.tanh(reward / 5.0)
        return np.where(reward < 0, 0.3 * squeezed, squeezed).astype(np.float32)
    return reward
