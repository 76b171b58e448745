"""Preprocessing of frames and rewards between the environment and the network, the same in acting and learning."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from clearl.spaces import MASK_FIELD, ObservationSpec, field_name

_WORDS = (2, 4, 8)  # sizes of NumPy's unsigned integers, in bytes


def stack_indices(first: np.ndarray, stack: int) -> np.ndarray:
    """Return the indices of the frames that make up each observation.

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
    """Build observations [B, T+1, stack*C, ...] from frames [B, T+stack, C, ...] that were stored once.

    A stack lies in memory time first and channels last, as batches and convolutions need it: writing it so at once
    takes a third of the time of stacking and then transposing it. A stack of one is the frames themselves.
    """
    if stack == 1:
        return frames
    indices = stack_indices(first, stack)
    (batch, steps), channels = indices.shape[:2], frames.shape[2]
    stacked = np.empty((steps, batch, *frames.shape[3:], stack * channels), frames.dtype)
    every, as_words = np.arange(batch), _is_word(stacked, channels)
    for step in range(1 if as_words else steps):
        for place in range(stack):
            chosen = frames[every, indices[:, step, place]]
            stacked[step, ..., place * channels : (place + 1) * channels] = np.moveaxis(chosen, 1, -1)
    for step in range(1, steps) if as_words else ():
        _shift(stacked[step - 1], frames[:, step + stack - 1, 0], first[:, step + stack - 1], out=stacked[step])
    return np.moveaxis(stacked, (0, -1), (1, 2))


def push_frames(stacked: np.ndarray, newest: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the observations [B, stack*C, ...] one step after `stacked`, which this or `stack_frames` returned.

    `newest` [B, C, ...] are the frames of that step, `first` [B] says which of them open an episode.
    """
    channels = newest.shape[1]
    if stacked.shape[1] == channels:
        return newest
    before = np.moveaxis(stacked, 1, -1)
    after: np.ndarray = np.empty(before.shape, before.dtype)
    if _is_word(before, channels):
        _shift(before, newest[:, 0], first, out=after)
    else:
        after[..., :-channels] = before[..., channels:]
        after[..., -channels:] = np.moveaxis(newest, 1, -1)
        after[first] = np.tile(after[first][..., -channels:], after.shape[-1] // channels)
    return np.moveaxis(after, -1, 1)


def _is_word(stacked: np.ndarray, channels: int) -> bool:
    """Return whether the stacks [..., stack*C] of one pixel are single bytes that together make an unsigned integer."""
    return stacked.itemsize == channels == 1 and stacked.shape[-1] in _WORDS


def _shift(stacked: np.ndarray, newest: np.ndarray, first: np.ndarray, *, out: np.ndarray) -> None:
    """Return the stacks [B, ..., stack] one step after `stacked`: the oldest byte goes, the newest comes.

    All bytes of a stack are one number, oldest lowest: shifting it makes room for the newest, for the whole batch in a
    few passes. Putting each byte to its place takes more than twice the time.
    """
    stack = stacked.shape[-1]
    before, after = (array.view(f"<u{stack}")[..., 0] for array in (stacked, out))
    word = after.dtype.type
    np.right_shift(before, word(8), out=after)
    np.bitwise_or(after, np.multiply(newest, word(1 << 8 * (stack - 1)), dtype=after.dtype), out=after)
    for row in np.flatnonzero(first):
        all_the_same = word(sum(1 << 8 * place for place in range(stack)))
        np.multiply(newest[row], all_the_same, out=after[row], dtype=after.dtype)


def observe(frames: np.ndarray, first: np.ndarray, spec: ObservationSpec) -> np.ndarray:
    """Build observations [B, T+1, ...] from frames [B, T+stack, ...], whether they are arrays or records."""
    if not spec.is_record:
        return stack_frames(frames, first, spec.stack)
    if spec.stack == 1:
        return frames
    shown = np.zeros((frames.shape[0], frames.shape[1] - spec.stack + 1), spec.record_dtype)
    for name in spec.parts:
        field, stack = field_name(name), spec.stack_of(name)
        shown[field] = stack_frames(frames[field], first, stack) if stack > 1 else frames[field][:, spec.stack - 1 :]
    return _with_masks(shown, frames[:, spec.stack - 1 :], spec)


def push(observation: np.ndarray, newest: np.ndarray, first: np.ndarray, spec: ObservationSpec) -> np.ndarray:
    """Return the observations [B, ...] one step after `observation`, which this or `observe` returned."""
    if not spec.is_record:
        return push_frames(observation, newest, first)
    if spec.stack == 1:
        return newest
    shown = np.zeros(len(newest), spec.record_dtype)
    for name in spec.parts:
        field = field_name(name)
        if spec.stack_of(name) > 1:
            channels = newest[field].shape[1]
            shown[field][:, :-channels] = observation[field][:, channels:]
            shown[field][:, -channels:] = newest[field]
            again = (1, spec.stack, *[1] * (newest[field].ndim - 2))
            shown[field][first] = np.tile(newest[field][first], again)
        else:
            shown[field] = newest[field]
    return _with_masks(shown, newest, spec)


def _with_masks(shown: np.ndarray, frames: np.ndarray, spec: ObservationSpec) -> np.ndarray:
    if spec.mask_size:
        shown[MASK_FIELD] = frames[MASK_FIELD]
    return shown


def whole(frames: np.ndarray) -> np.ndarray:
    """Return a view to copy by: records without gaps as one item of bytes each, everything else as it is.

    NumPy copies records field by field, which takes ten times as long, but leaves the bytes between fields alone.
    """
    item = _whole_dtype(frames.dtype)
    return frames if item is None else frames.view(item)


@lru_cache
def _whole_dtype(dtype: np.dtype) -> np.dtype | None:
    if dtype.fields is None or sum(field[0].itemsize for field in dtype.fields.values()) < dtype.itemsize:
        return None
    return np.dtype((np.void, dtype.itemsize))


def copied(observation: np.ndarray) -> np.ndarray:
    """Copy, in C order. The bytes between fields of a record are zeros here, not what was there."""
    if observation.dtype.names is None:
        return np.array(observation, order="C", copy=True)
    made = np.zeros(observation.shape, observation.dtype)
    whole(made)[...] = whole(observation)
    return made


def as_tensor(observation: np.ndarray) -> torch.Tensor:
    """Convert for the network: arrays as they are, records as their bytes [..., nbytes]."""
    if observation.dtype.names is None:
        return torch.from_numpy(observation)
    return torch.from_numpy(observation[..., None].view(np.uint8))


def cleared(last: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the last actions or rewards [..., *shape] with 0 where `first` [...]: before an episode there was none.

    A copy takes a fifth of the time of `np.where`, and in most steps no episode begins.
    """
    kept = last.copy()
    if first.any():
        kept[first] = 0
    return kept


def clip_reward(reward: np.ndarray, kind: str) -> np.ndarray:
    """Clip rewards for the learner: `unit` [-1, 1], `soft_asymmetric` as DMLab-30, or `none`."""
    if kind == "unit":
        return np.minimum(np.maximum(reward, np.float32(-1)), np.float32(1))  # np.clip takes four times as long
    if kind == "soft_asymmetric":
        squeezed = 5.0 * np.tanh(reward / 5.0)
        return np.where(reward < 0, 0.3 * squeezed, squeezed).astype(np.float32)
    return reward
