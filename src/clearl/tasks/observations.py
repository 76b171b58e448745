"""The observation spaces of tasks as JSON, and their parts as images, vectors, flags and one-hot numbers in frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from clearl.errors import ConfigError, CorruptFileError, UnfitSpaceError
from clearl.spaces import ObservationSpec, PartDtype, PartSpec, field_name

Description = dict[str, Any]
"""A Gymnasium space as JSON types."""

WRAP = "wrap it (--wrappers module:Class), or register the wrapped one under its own id"
CORRECT = "correct observation_space"
IMAGE_CHANNELS = (1, 3, 4)
MOST_OPTIONS = 65_536
"""The most options of a discrete observation, which is encoded one-hot."""
_MOST_DEPTH = 16


@dataclass(frozen=True)
class ObservationPart:
    """One array or number of an observation: its place, and its encoding in frames."""

    path: tuple[str | int, ...]
    """Keys of Dicts and places in Tuples that lead to it."""
    kind: str
    """"box", "flags" for bits, "one_hot" for whole numbers, or "planes" for a grid of cells with whole numbers."""
    shape: tuple[int, ...]
    """The shape in the environment's own observations."""
    dtype: PartDtype
    counts: tuple[int, ...] = ()
    """one_hot, planes: how many options each number has."""
    starts: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()
    """planes: the size of the grid, (H, W). A single number becomes planes with one value in all cells."""
    first_plane: int = 0
    """planes: the index of the first one; all parts of this kind share one image."""

    @property
    def name(self) -> str:
        """The name of the part of frames that it is written to."""
        return "" if self.kind == "planes" else "/".join(map(str, self.path))

    @cached_property
    def channel_axis(self) -> int | None:
        """The axis of an image's channels, which becomes the first axis; None for other parts."""
        if self.kind != "box" or len(self.shape) != 3:
            return None
        return 0 if self.shape[0] in IMAGE_CHANNELS and self.shape[2] not in IMAGE_CHANNELS else 2

    @cached_property
    def spec(self) -> PartSpec:
        """The part as frames hold it: (C, H, W) or (D,). Cached: every step of every environment needs it."""
        if self.kind == "one_hot":
            return PartSpec((sum(self.counts),), "bool")
        if self.kind == "planes":
            return PartSpec((self.first_plane + sum(self.counts), *self.grid), "bool")
        if self.kind == "box" and len(self.shape) == 2:
            return PartSpec((1, *self.shape), self.dtype)
        if self.channel_axis is None:
            return PartSpec((prod(self.shape),), self.dtype)
        rest = [size for axis, size in enumerate(self.shape) if axis != self.channel_axis]
        return PartSpec((self.shape[self.channel_axis], *rest), self.dtype)

    def problem(self, array: np.ndarray) -> str | None:
        """Return what is wrong with a value of this part, and the remedy; None if it is sound."""
        here = f"the observation's part {'/'.join(map(str, self.path))!r}" if self.path else "the observation"
        if array.shape != self.shape:
            remedy = "leave out the batch axis" if array.shape[1:] == self.shape else f"reshape it, or {CORRECT}"
            return f"{here} has shape {array.shape} instead of {self.shape}; {remedy}"
        if self.kind in ("one_hot", "planes"):
            return self._option_problem(here, array)
        if self.kind == "flags":
            is_bits = array.dtype.kind in "iub" and bool(((array == 0) | (array == 1)).all())
            return None if is_bits else f"{here} holds something else than 0 and 1; make it flags, or {CORRECT}"
        # float64 for float32 is common and harmless; numbers in [0, 1] for uint8 would all become 0.
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            return f"{here} has dtype {array.dtype} instead of {self.dtype}; convert it, or {CORRECT}"
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):  # 1e39 becomes infinity, which is checked after the cast
                if not np.isfinite(array.astype(np.float32, copy=False)).all():
                    problem = f"{here} holds NaN or infinity, or a number beyond float32"
                    return f"{problem}; mend the cause, or replace them (np.nan_to_num, np.clip)"
        return None

    def written(self, array: np.ndarray) -> np.ndarray:
        """Return a value of this part in the shape of its spec."""
        if self.kind == "one_hot":
            flags = np.zeros(sum(self.counts), bool)
            flags[np.cumsum([0, *self.counts[:-1]]) + array.ravel().astype(np.int64) - self.starts] = True
            return flags
        if self.kind == "planes":
            cells = np.broadcast_to(array, (*self.grid, len(self.counts)))
            return np.concatenate([cells[..., i] == np.arange(n)[:, None, None] for i, n in enumerate(self.counts)])
        if self.channel_axis is None:
            return array.reshape(self.spec.shape)
        return np.moveaxis(array, self.channel_axis, 0)

    def _option_problem(self, here: str, array: np.ndarray) -> str | None:
        if array.dtype.kind not in "iub":
            return f"{here} has dtype {array.dtype} instead of whole numbers; round it, or {CORRECT}"
        numbers = array.reshape(-1, len(self.counts)).astype(np.int64) - (self.starts or 0)
        outside = (numbers < 0) | (numbers >= np.array(self.counts))
        if outside.any() and self.kind == "planes":
            return f"{here} holds numbers outside of 0 to {', '.join(str(n - 1) for n in self.counts)}; {CORRECT}"
        return f"{here} is {array.tolist()}, outside of its space; mend it, or {CORRECT}" if outside.any() else None


class TaskObservations:
    """The observations of one task."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self.parts = _parts(description, (), 0)

    def value(self, observation: Any, part: ObservationPart) -> np.ndarray:
        """Return one part of an observation; raises if it is missing."""
        for key in part.path:
            observation = observation[key]
        return np.asarray(observation)

    def is_batch(self, observation: Any) -> bool:
        """Return whether the observation has a batch axis in front of its own shape."""
        part = self.parts[0]
        return self.value(observation, part).ndim == len(part.shape) + 1

    def member(self, observation: Any, index: int) -> Any:
        """Return one observation of a batch."""
        if isinstance(observation, Mapping):
            return {name: self.member(item, index) for name, item in observation.items()}
        if isinstance(observation, tuple):
            return tuple(self.member(item, index) for item in observation)
        return np.asarray(observation)[index]

    def count(self, observation: Any) -> int:
        """Return the size of a batch."""
        return len(self.value(observation, self.parts[0]))


def describe_observations(task: str, space: Any) -> Description:
    """Describe the observation space of a task; raise an error that names what cannot be trained on."""
    description = _describe(task, space)
    names = [field_name(part.name) for part in _parts(description, (), 0)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        problem = f"{task} has two parts in its observations that are both called {twice!r}, after the keys to them"
        raise UnfitSpaceError(problem, WRAP)
    return description


def _describe(task: str, space: Any) -> Description:
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        for name in space.spaces:
            if not isinstance(name, str):
                raise UnfitSpaceError(f"{task} has a part called {name!r} in its observations, which is no text", WRAP)
            if not name:
                raise UnfitSpaceError(f"{task} has a part without a name in its observations", WRAP)
        items = {name: _describe(task, item) for name, item in space.spaces.items()}
        return _some(task, {"kind": "dict", "items": items})
    if isinstance(space, spaces.Tuple):
        items = [_describe(task, item) for item in space.spaces]
        return _some(task, {"kind": "tuple", "items": items})
    if isinstance(space, spaces.Discrete):
        return _one_hot(task, [int(space.n)], [int(space.start)], [])
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (np.asarray(part).ravel().tolist() for part in (space.nvec, space.start))
        return _one_hot(task, counts, starts, list(space.shape))
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "flags", "shape": list(space.shape), "dtype": "bool"}
    if isinstance(space, spaces.Box):
        if 0 in space.shape:
            raise UnfitSpaceError(f"{task} has an empty part {space} in its observations", "remove it from the space")
        dtype = "uint8" if space.dtype == np.uint8 else "bool" if space.dtype == np.bool_ else "float32"
        return {"kind": "box", "shape": list(space.shape), "dtype": dtype}
    raise UnfitSpaceError(
        f"{task} has {type(space).__name__} observations, but Box, Discrete, MultiDiscrete, MultiBinary or a Dict or "
        "Tuple of these are needed",
        "flatten them with --wrappers FlattenObservation, or register a wrapped one under its own id",
    )


def _some(task: str, description: Description) -> Description:
    if not description["items"]:
        raise UnfitSpaceError(f"{task} has an empty {description['kind'].title()} in its observations", "remove it")
    return description


def _one_hot(task: str, counts: list[int], starts: list[int], shape: list[int]) -> Description:
    if sum(counts) > MOST_OPTIONS:
        raise UnfitSpaceError(
            f"{task} has discrete observations with {sum(counts):_} options, more than {MOST_OPTIONS:_} can be shown "
            "one-hot",
            f"{WRAP}, with numbers instead",
        )
    return {"kind": "one_hot", "counts": counts, "starts": starts, "shape": shape}


def observations_from_json(description: Any, source: str) -> TaskObservations:
    """Return the observations described in a file; `CorruptFileError` if that is damaged."""
    try:
        return TaskObservations(description)
    except (TypeError, KeyError, ValueError, AttributeError, IndexError) as error:
        raise CorruptFileError(f"{source}: not the observations of a task ({error})") from None


def _parts(node: Description, path: tuple[str | int, ...], depth: int) -> list[ObservationPart]:
    if depth > _MOST_DEPTH:
        raise ValueError("spaces are nested too deeply")
    if node["kind"] == "dict":
        return [part for key, item in node["items"].items() for part in _parts(item, (*path, str(key)), depth + 1)]
    if node["kind"] == "tuple":
        return [part for i, item in enumerate(node["items"]) for part in _parts(item, (*path, i), depth + 1)]
    shape = tuple(int(size) for size in node["shape"])
    if node["kind"] == "one_hot":
        counts, starts = (tuple(int(number) for number in node[key]) for key in ("counts", "starts"))
        return [ObservationPart(path, "one_hot", shape, "bool", counts, starts)]
    if node["kind"] == "planes":
        return _planes(node["items"], shape, path)
    if node["kind"] not in ("box", "flags") or node["dtype"] not in ("uint8", "bool", "float32"):
        raise ValueError(f"an unknown kind of space: {node['kind']!r}")
    return [ObservationPart(path, node["kind"], shape, node["dtype"])]


def _planes(items: list[Any], grid: tuple[int, ...], path: tuple[str | int, ...]) -> list[ObservationPart]:
    """Return parts whose planes follow each other in one image; `items`: (key, option counts of a cell's numbers)."""
    parts, start = [], 0
    for key, counts in items:
        options = tuple(int(count) for count in counts)
        shape = (*grid, len(options)) if len(options) > 1 else ()
        parts.append(ObservationPart((*path, str(key)), "planes", shape, "bool", options, (), grid, start))
        start += sum(options)
    return parts


def common_observation(tasks: Mapping[str, TaskObservations], *, stack: int, mask_size: int = 0) -> ObservationSpec:
    """Return the smallest observation that holds those of all tasks."""
    parts: dict[str, PartSpec] = {}
    for task, observations in tasks.items():
        for part in observations.parts:
            own = part.spec
            there = parts.get(part.name, own)
            if len(there.shape) != len(own.shape):
                raise ConfigError(_unlike(tasks, part.name, task))
            shape = tuple(max(sizes) for sizes in zip(there.shape, own.shape, strict=True))
            parts[part.name] = PartSpec(shape, own.dtype if own.dtype == there.dtype else "float32")
    return ObservationSpec(parts, stack, mask_size)


def _unlike(tasks: Mapping[str, TaskObservations], name: str, task: str) -> str:
    shapes = {other: part.spec.shape for other, each in tasks.items() for part in each.parts if part.name == name}
    listed = ", ".join(f"{other} {shape}" for other, shape in shapes.items())
    where = f" in part {name!r}" if name else ""
    return f"images and vectors cannot share one network{where}: {listed}; choose tasks of one kind"
