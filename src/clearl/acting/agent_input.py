"""Observations and masks as the caller of an agent gives them: fitted to the agent's spec, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clearl.acting.agent_tasks import AgentTask
from clearl.errors import ConfigError
from clearl.spaces import MASK_FIELD, ObservationSpec, TaskSpec
from clearl.tasks.observations import TaskObservations
from clearl.tasks.writing import ObservationWriter


def is_frame(observations: TaskObservations, given: Any, spec: ObservationSpec) -> bool:
    """Return whether an environment shows a Dict that becomes one image, and the image itself is given."""
    is_dict = bool(observations.parts[0].path) and not spec.is_record
    return is_dict and not isinstance(given, Mapping) and np.shape(given)[-3:] == spec.frame_shape


def fit_parts(observations: TaskObservations, given: Any, spec: ObservationSpec) -> tuple[np.ndarray, bool]:
    """Return frames of one observation of a task, or of a batch, and whether it was a batch."""
    writer = ObservationWriter(observations, spec)
    keys = [str(part.path[0]) for part in observations.parts if part.path]
    if keys and not isinstance(given, Mapping | tuple):
        raise ConfigError(f"an observation of this task has {' and '.join(dict.fromkeys(keys))}; give the whole of it")
    try:
        batched = observations.is_batch(given)
        count = observations.count(given) if batched else 1
        frames = np.zeros((count, *spec.frame_shape), spec.frame_dtype)
        problems = [
            writer.write(observations.member(given, i) if batched else given, frame) for i, frame in enumerate(frames)
        ]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ConfigError(f"an observation does not fit: {type(error).__name__}: {error}") from error
    if any(problems):
        raise ConfigError(f"an observation does not fit: {next(filter(None, problems))}")
    if spec.mask_size:
        frames[MASK_FIELD] = True
    return frames, batched


def allowed_actions(about: AgentTask | None, mask: Any, count: int, spec: TaskSpec) -> np.ndarray:
    """Return [count, mask_size] bool: what the task has of the actions, less what the masks of the states forbid."""
    allowed = np.ones((count, spec.action.mask_size), bool)
    if about is not None:
        allowed &= about.mask
    if mask is None:
        return allowed
    possible = [allowed[:, options].any() for options in spec.action.options]
    allowed &= _state_masks(about, mask, count, spec)
    for options, expected in zip(spec.action.options, possible, strict=True):
        if expected and not allowed[:, options].any(1).all():
            raise ConfigError("the mask allows no action at all; end the episode before such a state, or allow one")
    return allowed


def _state_masks(about: AgentTask | None, mask: Any, count: int, spec: TaskSpec) -> np.ndarray:
    """Return masks [count or 1, mask_size], given as by the task's environments or as flags of the spec's actions."""
    size = spec.action.mask_size
    try:
        rows = _mask_rows(mask)
        of_spec = all(not isinstance(row, tuple) and np.shape(row) == (size,) for row in rows)
    except ValueError as error:
        raise ConfigError(f"a mask is an array of flags, or a tuple with one for each choice: {error}") from None
    if len(rows) not in (1, count):
        raise ConfigError(f"{len(rows)} masks do not fit {count} observations; give one for each")
    if of_spec:
        if not np.isin(rows, (0, 1)).all():  # logits, for example
            raise ConfigError("the mask holds other numbers than 0 and 1; give 1 for what the state allows")
        return np.array(rows, bool)
    if about is None or about.actions is None:
        raise ConfigError(f"a mask of shape {np.shape(mask)} does not fit {size} actions; name the task with task=...")
    return np.array([about.actions.state_mask(row, spec.action) for row in rows])


def _mask_rows(mask: Any) -> list[Any]:
    """Return the masks of single states: rows of an array, or of each array of a tuple with one for each choice."""
    if isinstance(mask, tuple) and any(np.ndim(part) for part in mask):
        return list(zip(*mask, strict=True)) if np.ndim(mask[0]) == 2 else [mask]
    return list(np.atleast_2d(np.asarray(mask)))


def fit_frames(observation: Any, spec: TaskSpec, channels: int | None = None) -> tuple[np.ndarray, bool]:
    """Return frames [n, *frame_shape] of one observation or of a batch, and whether it was a batch."""
    given, shape = np.asarray(observation), spec.observation.frame_shape
    batched = given.ndim == len(shape) + 1
    frames = np.stack([fit_frame(frame, spec, channels) for frame in (given if batched else given[None])])
    return frames, batched


def fit_frame(frame: np.ndarray, spec: TaskSpec, channels: int | None = None) -> np.ndarray:
    """Return an environment's observation as a frame: channels first, padded with zeros where it is smaller."""
    given, shape = frame.shape, spec.observation.frame_shape
    if frame.dtype.kind == "f" and not np.isfinite(frame).all():
        raise ConfigError("the observation holds NaN or infinity")
    if spec.observation.frame_dtype == np.bool_ and not np.isin(frame, (0, 1)).all():
        raise ConfigError("the observation holds other numbers than 0 and 1; this agent sees planes of bits")
    if frame.ndim == 3 and len(shape) == 3:
        frame = np.moveaxis(frame, _channel_axis(frame.shape, shape) if channels is None else channels, 0)
    if frame.ndim != len(shape) or any(a > b for a, b in zip(frame.shape, shape, strict=True)):
        raise ConfigError(f"an observation of shape {given} does not fit frames of {shape}")
    fitted = np.zeros(shape, spec.observation.frame_dtype)
    fitted[tuple(slice(size) for size in frame.shape)] = frame
    return fitted


def _channel_axis(given: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the axis of the channels in an image that becomes (C, H, W).

    An error where both the first and the last fit.
    """
    first = given[0] <= shape[0] and given[1:] == shape[1:]
    last = given[2] <= shape[0] and given[:2] == shape[1:]
    if first and last:
        raise ConfigError(
            f"an image of {given} may have its channels first or last; say which: act(..., channels=0) or channels=2"
        )
    return 2 if last else 0
