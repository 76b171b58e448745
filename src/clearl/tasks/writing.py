"""Write the observations of one task into frames of the common spec, one by one or a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from clearl.spaces import ObservationSpec, PartSpec, field_name
from clearl.tasks.observations import ObservationPart, TaskObservations

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
