"""From Gymnasium's spaces to frames: which environments fit, how their observations are laid out, padded and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearl.errors import ConfigError
from clearl.spaces import PartDtype

FLATTEN = "gymnasium.wrappers.FlattenObservation"
WRAP = "wrap it and register the result under its own id"
IMAGE_CHANNELS = (1, 3, 4)
BAR_PIXELS = 8


@dataclass(frozen=True)
class FrameFormat:
    """How one environment's observations become frames."""

    shape: tuple[int, ...]
    """As the environment gives them."""
    dtype: PartDtype
    channel_axis: int | None = None
    """Of an image with channels; it becomes the first axis."""

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """(C, H, W) or (D,)."""
        if len(self.shape) == 1:
            return self.shape
        if self.channel_axis is None:
            return (1, *self.shape)
        rest = [size for axis, size in enumerate(self.shape) if axis != self.channel_axis]
        return (self.shape[self.channel_axis], *rest)

    def frame(self, observation: np.ndarray) -> np.ndarray:
        """The observation with its channels first."""
        if self.channel_axis is None:
            return observation.reshape(self.frame_shape)
        return np.moveaxis(observation, self.channel_axis, 0)


def frame_format(env_id: str, space: Any) -> FrameFormat:
    """The format of an observation space, or an error that names the wrapper that would mend it."""
    from gymnasium.spaces import Box

    if not isinstance(space, Box):
        kind = type(space).__name__
        raise ConfigError(f"{env_id} has {kind} observations, but Box is needed; {WRAP}, for instance with {FLATTEN}")
    shape = tuple(int(size) for size in space.shape)
    if not 1 <= len(shape) <= 3:
        raise ConfigError(
            f"{env_id} has observations of shape {shape}, but a vector (D,) or an image (H, W) or (H, W, C) is needed; "
            f"{WRAP}, for instance with gymnasium.wrappers.ReshapeObservation or FlattenObservation"
        )
    dtype = _frame_dtype(space.dtype)
    if len(shape) < 3:
        return FrameFormat(shape, dtype)
    channels_first = shape[0] in IMAGE_CHANNELS and shape[2] not in IMAGE_CHANNELS
    return FrameFormat(shape, dtype, 0 if channels_first else 2)


def num_actions(env_id: str, space: Any) -> int:
    """The size of an action space, or an error that names the wrapper that would mend it."""
    from gymnasium.spaces import Box, Discrete

    if isinstance(space, Discrete):
        return int(space.n)
    wrapper = "gymnasium.wrappers." + ("DiscretizeAction" if isinstance(space, Box) else "TransformAction")
    kind = "continuous (Box)" if isinstance(space, Box) else type(space).__name__
    raise ConfigError(f"{env_id} has {kind} actions, but Discrete is needed; {WRAP}, for instance with {wrapper}")


def common_format(formats: dict[str, FrameFormat]) -> tuple[tuple[int, ...], PartDtype]:
    """The smallest frame that holds those of all tasks, and a dtype that fits all."""
    shapes = {task: fmt.frame_shape for task, fmt in formats.items()}
    if len({len(shape) for shape in shapes.values()}) > 1:
        listed = ", ".join(f"{task} {shape}" for task, shape in shapes.items())
        raise ConfigError(f"images and vectors cannot share one network: {listed}; choose tasks of one kind")
    shape = tuple(max(sizes) for sizes in zip(*shapes.values(), strict=True))
    dtype: PartDtype = next(iter(formats.values())).dtype
    return shape, dtype if all(fmt.dtype == dtype for fmt in formats.values()) else "float32"


class FrameWriter:
    """Checks one environment's observations and writes them into padded frames."""

    def __init__(self, fmt: FrameFormat, frame_dtype: PartDtype) -> None:
        self._format = fmt
        self._corner = tuple(slice(0, size) for size in fmt.frame_shape)
        # What networks do with uint8 is done here where tasks with other dtypes force float32.
        self._scale = 1 / 255 if fmt.dtype == "uint8" and frame_dtype == "float32" else None

    def write(self, observation: Any, frame: np.ndarray) -> str | None:
        """Into a frame of zeros; what is wrong with the observation, or None."""
        try:
            array = np.asarray(observation)
        except (ValueError, TypeError) as error:  # ragged, or an object that refuses
            return f"the observation is no array: {error}"
        fmt = self._format
        if array.shape != fmt.shape:
            return f"the observation has shape {array.shape} instead of {fmt.shape}"
        # float64 for float32 is common and harmless; numbers in [0, 1] for uint8 would all become 0.
        if not np.can_cast(array.dtype, fmt.dtype, "same_kind"):
            return f"the observation has dtype {array.dtype} instead of {fmt.dtype}"
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):
                array = array.astype(np.float32, copy=False)  # 1e39 becomes infinity: look after the cast
            if not np.isfinite(array).all():
                return "the observation holds NaN or infinity, or a number beyond float32"
        frame[self._corner] = fmt.frame(array) if self._scale is None else fmt.frame(array) * self._scale
        return None


def _frame_dtype(dtype: Any) -> PartDtype:
    if dtype == np.uint8:
        return "uint8"
    return "bool" if dtype == np.bool_ else "float32"


def draw_frame(frame: np.ndarray, *, channels: Sequence[int] = (0, 1, 2)) -> np.ndarray:
    """Any frame as an RGB picture [H, W, 3]: images as they are, vectors as bars left and right of a middle line."""
    if frame.ndim == 1:
        return _draw_bars(frame.astype(np.float32))
    if frame.dtype == np.uint8:
        levels = frame
    else:
        values = frame.astype(np.float32)
        low, high = float(values.min()), float(values.max())
        levels = ((values - low) * (255 / max(high - low, 1e-9))).astype(np.uint8)
    chosen = [c if len(levels) >= 3 else 0 for c in channels]
    return np.ascontiguousarray(levels[chosen].transpose(1, 2, 0))


def _draw_bars(values: np.ndarray) -> np.ndarray:
    half = 64
    lengths = np.round(np.tanh(values) * half).astype(int)
    picture = np.zeros((len(values) * BAR_PIXELS, 2 * half, 3), np.uint8)
    for index, length in enumerate(lengths):
        rows = slice(index * BAR_PIXELS, (index + 1) * BAR_PIXELS - 1)
        picture[rows, min(half, half + length) : max(half, half + length)] = (
            (0, 114, 178) if length > 0 else (230, 159, 0)
        )
    picture[:, half] = 255
    return picture
