"""Convert Gymnasium action spaces to choices and real numbers, and actions back to an environment's own form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from clearl.errors import ConfigError, CorruptFileError, UnfitMaskError, UnfitSpaceError
from clearl.spaces import MASK_FIELD, ActionSpec

Description = dict[str, Any]
"""A Gymnasium space as JSON types."""

WIDEST = 1e6
"""Boxes wider than this count as unbounded: a tanh scaled to one would make every action huge. They are clipped."""
MASK_KEY = "action_mask"
"""The key of a step's info that holds which options the state allows."""
_MOST_DEPTH = 16


@dataclass(frozen=True)
class _Real:
    """One real number of an action: its bounds, which may be infinite."""

    low: float
    high: float

    @property
    def bounded(self) -> bool:
        return bool(np.isfinite(self.low) and np.isfinite(self.high)) and self.high - self.low <= WIDEST


class TaskActions:
    """The actions of one task: `converter` serves its environments, `mask` the network."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self.choices: list[int] = []
        self.reals: list[_Real] = []
        self._build = self._reader(description, 0)
        self._options = sum(self.choices)
        self._starts = np.cumsum([0, *self.choices[:-1]])

    @property
    def kinds(self) -> str:
        """The kinds of actions in words: discrete, continuous or both."""
        return " and ".join(["discrete"] * bool(self.choices) + ["continuous"] * bool(self.reals))

    def mask(self, spec: ActionSpec) -> np.ndarray:
        """Return [mask_size] bool: which of the actions common to all tasks this task has."""
        own = [*self.choices, *[0] * (len(spec.choices) - len(self.choices))]
        options = [np.arange(most) < count for most, count in zip(spec.choices, own, strict=True)]
        return np.concatenate([*options, np.arange(spec.reals) < len(self.reals)])

    def flags(self, mask: Any) -> np.ndarray:
        """Return the flags in `info["action_mask"]`, one for each option of each choice; raise `UnfitMaskError`.

        It is an array of flags, one choice after the other, or a tuple of such arrays.
        """
        try:
            flags = np.concatenate([np.ravel(part) for part in mask]) if isinstance(mask, tuple) else np.ravel(mask)
        except ValueError:  # ragged, or an empty tuple
            flags = np.empty(0, object)
        if flags.dtype.kind not in "biuf":
            remedy = "give an array of flags, or a tuple with one for each choice"
            raise UnfitMaskError(f"{MASK_KEY} is {mask!r:.80}", remedy)
        if flags.shape != (self._options,):
            problem = f"{MASK_KEY} has {flags.size} flags instead of {self._options}"
            raise UnfitMaskError(problem, "give one for each option of the task's own actions")
        allowed = flags.astype(bool)
        if flags.dtype.kind != "b" and not (flags == allowed).all():  # NaN, and logits such as 0 and -inf
            values = ", ".join(str(value) for value in np.unique(flags)[:4])
            problem = f"{MASK_KEY} holds other numbers than 0 and 1: {values}"
            raise UnfitMaskError(problem, "give 1 for what the state allows, 0 for the rest")
        if not np.logical_or.reduceat(allowed, self._starts).all():
            problem = f"{MASK_KEY} allows no action at all"
            raise UnfitMaskError(problem, "end the episode before such a state, or allow one")
        return allowed

    def state_mask(self, mask: Any, spec: ActionSpec) -> np.ndarray:
        """Return [mask_size] bool: which of the actions common to all tasks a state allows; errors as in `flags`."""
        allowed = self.mask(spec)
        allowed[np.flatnonzero(allowed[: sum(spec.choices)])] = self.flags(mask)
        return allowed

    def mask_writer(self, spec: ActionSpec) -> Callable[[Any, Any], str | None]:
        """Return a function that writes `info["action_mask"]` into a frame; it returns what is wrong, or None."""
        everything = self.mask(spec)
        places = np.flatnonzero(everything[: sum(spec.choices)])

        def write(info: Any, frame: Any) -> str | None:
            frame[MASK_FIELD][:] = everything
            try:
                if MASK_KEY not in info:
                    return None
            except TypeError:
                return f"info is {info!r:.80}; return a dict"
            try:
                frame[MASK_FIELD][places] = self.flags(info[MASK_KEY])
            except UnfitMaskError as error:
                return str(error)
            return None

        return write

    def converter(self, spec: ActionSpec) -> Callable[[np.ndarray], Sequence[Any]]:
        """Return a function from stored actions [n, *action_shape] to the actions that n environments take."""
        if self.description["kind"] == "discrete":
            start = int(self.description["starts"][0])
            return lambda actions: [start + action for action in _first_choices(actions, spec).tolist()]
        squash = self._squash(spec)
        return lambda actions: [self._build(*split) for split in squash(actions)]

    def _squash(self, spec: ActionSpec) -> Callable[[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
        """Return a function that gives the choices [K] and real numbers [D], within bounds, of each environment."""
        count, own = len(spec.choices), len(self.reals)
        low, high = (np.array([getattr(real, end) for real in self.reals]) for end in ("low", "high"))
        scaled = np.array([real.bounded and spec.bounded[i] for i, real in enumerate(self.reals)], bool)
        ends = np.where(scaled, low, -1.0), np.where(scaled, high, 1.0)
        middle, half = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
        every = bool(scaled.all())

        def split(actions: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
            rows = actions.reshape(len(actions), -1)
            reals = rows[:, count : count + own].astype(np.float64)
            squashed = np.tanh(reals) if every else np.where(scaled, np.tanh(reals), reals)
            within = np.minimum(np.maximum(middle + half * squashed, low), high)
            return list(zip(rows[:, :count].astype(np.int64), within, strict=True))

        return split

    def _reader(self, node: Description, depth: int) -> Callable[[np.ndarray, np.ndarray], Any]:
        """Return a function that builds one environment's action; adds to `choices` and `reals` on the way."""
        if depth > _MOST_DEPTH:
            raise ValueError("spaces are nested too deeply")
        kind, shape = node["kind"], tuple(node.get("shape", ()))
        if kind in ("tuple", "dict"):
            items = node["items"]
            readers = [self._reader(item, depth + 1) for item in (items if kind == "tuple" else items.values())]
            if kind == "tuple":
                return lambda choices, reals: tuple(read(choices, reals) for read in readers)
            return lambda choices, reals: {
                name: read(choices, reals) for name, read in zip(items, readers, strict=True)
            }
        dtype = np.dtype(node["dtype"])
        if kind == "box":
            first = len(self.reals)
            self.reals += [_Real(*pair) for pair in zip(_floats(node["low"]), _floats(node["high"]), strict=True)]
            last, limits = len(self.reals), _limits(dtype)
            if limits is None or all(real.bounded for real in self.reals[first:]):
                return lambda choices, reals: _cast(reals[first:last], dtype).reshape(shape)
            return lambda choices, reals: _cast(np.clip(reals[first:last], *limits), dtype).reshape(shape)
        first = len(self.choices)
        self.choices += [int(count) for count in node["counts"]]
        last, starts = len(self.choices), np.array(node["starts"], np.int64)
        if kind == "discrete":
            return lambda choices, reals: dtype.type(choices[first] + starts[0])
        return lambda choices, reals: (choices[first:last] + starts).astype(dtype).reshape(shape)


def describe_actions(task: str, space: Any) -> Description:
    """Describe the action space of a task; raise an error that names what cannot be trained on."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "counts": [int(space.n)], "starts": [int(space.start)], "dtype": "int64"}
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (np.asarray(part).ravel().tolist() for part in (space.nvec, space.start))
        shape = list(space.shape)
        return {"kind": "multi_discrete", "counts": counts, "starts": starts, "shape": shape, "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiBinary):
        count, shape = prod(space.shape), list(space.shape)
        return {
            "kind": "multi_binary", "counts": [2] * count, "starts": [0] * count, "shape": shape, "dtype": "int8",
        }  # fmt: skip
    if isinstance(space, spaces.Box):
        return _describe_box(task, space)
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "items": [describe_actions(task, item) for item in space.spaces]}
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "items": {name: describe_actions(task, item) for name, item in space.spaces.items()}}
    raise UnfitSpaceError(
        f"{task} has {type(space).__name__} actions, but Discrete, MultiDiscrete, MultiBinary, Box or a Tuple or Dict "
        "of these are needed",
        "wrap it and register the result under its own id, for instance with gymnasium.wrappers.TransformAction",
    )


def _describe_box(task: str, space: Any) -> Description:
    low, high = (np.asarray(part, np.float64).ravel() for part in (space.low, space.high))
    if low.size == 0:
        raise UnfitSpaceError(
            f"{task} has actions in {space}, which hold nothing", "remove the empty part from the space"
        )
    ends = {"low": _texts(low), "high": _texts(high)}
    return {"kind": "box", **ends, "shape": list(space.shape), "dtype": str(space.dtype)}


def actions_from_json(description: Any, source: str) -> TaskActions:
    """Return the actions described in a file; `CorruptFileError` if that is damaged."""
    try:
        actions = TaskActions(description)
        if len(actions.choices) + len(actions.reals) > 1_000_000 or not (actions.choices or actions.reals):
            raise ValueError("too many parts, or none")
    except (TypeError, KeyError, ValueError, AttributeError, IndexError) as error:
        raise CorruptFileError(f"{source}: not the actions of a task ({error})") from None
    return actions


def common_actions(tasks: Mapping[str, TaskActions]) -> ActionSpec:
    """Return the smallest actions that hold those of all tasks."""
    first_task, first = next(iter(tasks.items()))
    for task, actions in tasks.items():
        if actions.kinds != first.kinds:
            raise ConfigError(
                f"{first_task} has {first.kinds} actions, {task} {actions.kinds} ones: one network cannot have both; "
                "train them in separate runs"
            )
    every = list(tasks.values())
    counts = [
        max(each.choices[i] for each in every if len(each.choices) > i)
        for i in range(max(len(each.choices) for each in every))
    ]
    bounded = [
        all(each.reals[i].bounded for each in every if len(each.reals) > i)
        for i in range(max(len(each.reals) for each in every))
    ]
    return ActionSpec(tuple(counts), tuple(bounded))


def _first_choices(actions: np.ndarray, spec: ActionSpec) -> np.ndarray:
    return actions if spec.is_discrete else actions[:, 0].astype(np.int64)


def _limits(dtype: np.dtype) -> tuple[float, float] | None:
    """Return the ends of a type that numbers within float32 and within exact bounds may leave; None for other types."""
    if dtype == np.float16:
        return float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    if dtype.kind in "iu" and dtype.itemsize == 8:  # its largest number is not one in float64
        return float(np.iinfo(dtype).min), float(np.nextafter(float(np.iinfo(dtype).max), 0))
    return None


def _cast(reals: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return (np.rint(reals) if dtype.kind in "iub" else reals).astype(dtype)


def _texts(values: np.ndarray) -> list[float | str]:
    """Write infinite numbers as text: JSON has no infinity."""
    return [float(value) if np.isfinite(value) else str(value) for value in values]


def _floats(values: Sequence[float | str]) -> list[float]:
    return [float(value) for value in values]
