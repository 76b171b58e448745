"""Convert Gymnasium observations to images, vectors and one-hot parts, and write them into frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import itemgetter
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


PlacedPart = tuple[ObservationPart, tuple[slice, ...], float | None]
"""A part, its place in the common one, and the factor that it is multiplied by."""


class ObservationWriter:
    """Checks one task's observations and writes them into frames of the common spec, padded with zeros."""

    def __init__(self, observations: TaskObservations, spec: ObservationSpec) -> None:
        self._observations, self._record = observations, spec.is_record
        self._parts = [(part, *_placed(part, spec.parts[part.name])) for part in observations.parts]

    def write(self, observation: Any, frame: Any) -> str | None:
        """Write into a frame of zeros, or a record of them; return what is wrong with the observation, or None."""
        return self.write_parts(observation, frame, self._parts)

    def write_parts(self, observation: Any, frame: Any, parts: Sequence[PlacedPart]) -> str | None:
        """Write some of the parts, as `write` does all."""
        for part, corner, scale in parts:
            try:
                array = self._observations.value(observation, part)
            except (KeyError, IndexError, TypeError, ValueError) as error:  # missing, ragged, or no array at all
                name = f"part {'/'.join(map(str, part.path))!r} of the observation" if part.path else "the observation"
                problem = f"{name} is missing or no array: {type(error).__name__}: {error}"
                return f"{problem}; every observation needs all parts of observation_space"
            problem = part.problem(array)
            if problem is not None:
                return problem
            values = part.written(array)
            place = frame[field_name(part.name)] if self._record else frame
            place[corner] = values if scale is None else values * scale
        return None

    def rows(self) -> ObservationRows:
        """Return a writer of whole batches: one observation for each of several environments."""
        return ObservationRows(self, self._parts, self._record)


class ObservationRows:
    """Writes the observations of a batch, with one check of all their real numbers.

        problem = rows.put(slot, observation, frames[slot])    # of each environment that stepped
        problems = rows.finish(frames)                         # {slot: problem}, once a batch

    Vectors of real numbers are copied at once, so that environments may reuse their arrays; they reach the frames in
    `finish`. Checking and writing each of them alone takes several times as long as a cheap environment's step. They
    are copied as bytes: joining those of three short arrays takes a tenth of the time of `np.concatenate`.
    """

    def __init__(self, writer: ObservationWriter, parts: Sequence[PlacedPart], record: bool) -> None:
        self._writer, self._columns = writer, []
        paths, start = [], 0
        for part, _, scale in parts:
            if part.kind == "box" and part.dtype == "float32" and len(part.shape) == 1 and scale is None:
                end = start + part.shape[0]
                field = field_name(part.name) if record else None
                self._columns.append((part, field, slice(start, end)))
                paths.append(part.path)
                start = end
        self._others = [each for each in parts if not any(each[0] is part for part, _, _ in self._columns)]
        self._values, self._width = _getter(paths), start
        kinds = [np.dtype("float32"), np.dtype("float64")]
        self._forms = [[(part.shape, kind) for part, _, _ in self._columns] for kind in kinds]
        self._taken = [_Taken(kind, [], []) for kind in kinds]

    def begin(self) -> None:
        """Begin a batch: what a failed one left is dropped."""
        for taken in self._taken:
            taken.clear()

    def put(self, slot: int, observation: Any, frame: Any) -> str | None:
        """Take in one observation; return what is wrong with it, or None. `finish` checks its real numbers."""
        if not self._columns:
            return self._writer.write(observation, frame)
        try:
            values = self._values(observation)
            taken = self._taken[self._forms.index([(value.shape, value.dtype) for value in values])]
            numbers = _joined(values)
        except Exception:  # noqa: BLE001 - the thorough way says what is wrong
            return self._writer.write(observation, frame)
        taken.slots.append(slot)
        taken.rows.append(numbers)
        return self._writer.write_parts(observation, frame, self._others) if self._others else None

    def drop(self, slot: int) -> None:
        """Forget the observation of an environment whose step failed or ended its episode."""
        for taken in self._taken:
            if taken.slots and taken.slots[-1] == slot:
                taken.slots.pop()
                taken.rows.pop()

    def finish(self, frames: np.ndarray) -> dict[int, str]:
        """Write what is left into the frames; return what is wrong, by slot. Frames of such slots are left as is."""
        problems: dict[int, str] = {}
        for taken in self._taken:
            if taken.slots:
                problems |= self._write(taken, frames)
        self.begin()
        return problems

    def _write(self, taken: _Taken, frames: np.ndarray) -> dict[int, str]:
        given = np.frombuffer(b"".join(taken.rows), taken.dtype).reshape(-1, self._width)
        with np.errstate(over="ignore"):  # 1e39 becomes infinity
            numbers = given.astype(np.float32, copy=False)
        places, problems = _places(taken.slots, len(frames)), {}
        if not np.isfinite(numbers).all():
            found = [self._problem(row) for row in given]
            problems = {slot: problem for slot, problem in zip(taken.slots, found, strict=True) if problem is not None}
            sound = [problem is None for problem in found]
            places, numbers = np.array(taken.slots, np.int64)[sound], numbers[sound]
        for part, field, columns in self._columns:
            place = frames if field is None else frames[field]
            place[places, : part.shape[0]] = numbers[:, columns]
        return problems

    def _problem(self, row: np.ndarray) -> str | None:
        return next((p for part, _, columns in self._columns if (p := part.problem(row[columns])) is not None), None)


@dataclass
class _Taken:
    """Observations of one dtype: the slots of a batch that gave them, and their real numbers as bytes."""

    dtype: np.dtype
    slots: list[int]
    rows: list[bytes]

    def clear(self) -> None:
        self.slots.clear()
        self.rows.clear()


def _joined(values: Sequence[Any]) -> bytes:
    try:
        return b"".join(values)
    except TypeError:  # not contiguous: a column of a matrix, for example
        return b"".join([value.tobytes() for value in values])


def _places(slots: list[int], count: int) -> slice | np.ndarray:
    """Return the slots as an index: a slice where they are all, which NumPy indexes much faster."""
    return slice(None) if len(slots) == count else np.array(slots)


def _getter(paths: Sequence[tuple[str | int, ...]]) -> Callable[[Any], Sequence[Any]]:
    """Return a function that takes the parts at `paths` out of an observation."""
    if list(paths) == [()]:
        return lambda observation: (observation,)
    if all(len(path) == 1 for path in paths) and len(paths) > 1:
        return itemgetter(*(path[0] for path in paths))

    def values(observation: Any) -> list[Any]:
        found = []
        for path in paths:
            value = observation
            for key in path:
                value = value[key]
            found.append(value)
        return found

    return values


def _placed(part: ObservationPart, common: PartSpec) -> tuple[tuple[slice, ...], float | None]:
    """Return the place of a part in the common one, and the factor that it is multiplied by (None: 1).

    uint8 is scaled to [0, 1] here if other tasks make the common part float32; otherwise networks scale it.
    """
    own = part.spec
    scale = 1 / 255 if own.dtype == "uint8" and common.dtype == "float32" else None
    first, *others = own.shape
    return (slice(part.first_plane, first), *(slice(0, size) for size in others)), scale


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
