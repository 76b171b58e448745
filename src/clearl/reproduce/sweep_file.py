"""The keys of a sweep file, read and checked: every mistake is one line that names the file. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from clearl.config import Between, load_yaml, settings_of, shown
from clearl.errors import ConfigError, UnknownNameError
from clearl.plugins import named_modules
from clearl.reproduce.catalog import ARMS

_HEAD = ("title", "preset")
_KEYS = (*_HEAD, "settings", "arms", "grid", "random", "orders", "seeds")
_MOST_RUNS = 100_000
_MOST = 1e300

Point = dict[str, Any]
Read = TypeVar("Read")


@dataclass(frozen=True)
class SweepHead:
    """The keys of the file that hold one value."""

    title: Annotated[str | None, "heading of the report; default: the file's name"] = None
    preset: Annotated[str | None, "preset that every run starts from"] = None


@dataclass(frozen=True)
class Draws:
    """The keys of `random` beside its settings."""

    samples: Annotated[int, Between(1, _MOST_RUNS), "draws; each is run by every arm with every seed"] = 1
    seed: Annotated[int, Between(0, 2**63 - 1), "seed of the draws"] = 0


@dataclass(frozen=True)
class Range:
    """The keys of a range under `random: settings`."""

    low: Annotated[float, Between(-_MOST, _MOST), "lower end"]
    high: Annotated[float, Between(-_MOST, _MOST), "upper end"]
    log: Annotated[bool, "draw evenly in the logarithm"] = False
    whole: Annotated[bool, "round to a whole number"] = False


@dataclass(frozen=True)
class Study:
    """The content of a sweep file."""

    head: SweepHead
    settings: Point
    arms: Mapping[str, Point]
    grid: Mapping[str, Sequence[Any]]
    ranges: Mapping[str, Range | list[Any]]
    draws: Draws
    orders: Sequence[Point]
    seeds: Sequence[int]

    @property
    def count(self) -> int:
        """The number of its runs, which may be too many to make."""
        return len(self.arms) * math.prod(map(len, self.grid.values())) * self.draws.samples * len(self.seeds)


def read_study(path: Path) -> Study:
    """Read a sweep file; the settings that it gives are checked when configs are made of them."""
    content = load_yaml(path)
    for key in content:
        if key not in _KEYS:
            raise UnknownNameError(f"key of sweep file {path}", str(key), _KEYS)
    ordered = content.get("orders") is not None
    file = _File(path, {"seed": "seeds", "tasks": "orders"} if ordered else {"seed": "seeds"})
    ranges, draws = _random(content.get("random"), file)
    study = Study(
        head=file.read(SweepHead, {key: content[key] for key in _HEAD if key in content}, ""),
        settings=_File(path, {"seed": "seeds"}).settings(content.get("settings"), "settings"),
        arms=_arms(content.get("arms"), file),
        grid=_grid(content.get("grid"), file),
        ranges=ranges,
        draws=draws,
        orders=_orders(content.get("orders"), file),
        seeds=_seeds(content.get("seeds", 1), file),
    )
    if study.count > _MOST_RUNS:
        raise file.error(f"it stands for more than {_MOST_RUNS:,} runs")
    return study


def modules_of(content: Mapping[str, Any]) -> list[str]:
    """Return the modules that the runs of a sweep file would import; what is malformed is refused where it is read."""
    return list(dict.fromkeys(module for given in _given(content) for module in named_modules(given)))


def _given(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the settings that the keys of the file give, wherever they stand."""
    yield _mapping(content.get("settings"))
    yield from map(_mapping, _mapping(content.get("arms")).values())
    lists = {**_mapping(content.get("grid")), **_mapping(_mapping(content.get("random")).get("settings"))}
    for key, values in [*lists.items(), ("tasks", content.get("orders"))]:
        yield from ({key: value} for value in (values if isinstance(values, list) else ()))


def _mapping(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}


@dataclass(frozen=True)
class _File:
    """A sweep file that is being read; every mistake in it is an error that names the file."""

    path: Path
    taken: Mapping[str, str]
    """Settings that only a key of the file may give, and that key."""

    def error(self, text: str) -> ConfigError:
        return ConfigError(f"sweep file {self.path}: {text}")

    def mapping(self, given: Any, what: str) -> Point:
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise self.error(f"{what} must map names to values, got {shown(given)}")
        return {str(key): value for key, value in given.items()}

    def settings(self, given: Any, what: str) -> Point:
        """Read settings, or the values of settings, by name."""
        found = self.mapping(given, what)
        for name, key in self.taken.items():
            if name in found:
                raise self.error(f"{what} must not set {name}: {key} gives it to every arm")
        return found

    def read(self, kind: type[Read], given: Point, what: str) -> Read:
        """Read the fields of a dataclass, each checked as a setting is."""
        known = settings_of(kind)
        for key in given:
            if key not in known:
                raise UnknownNameError(f"key of {what} in sweep file {self.path}", key, known)
        try:
            return kind(**{name: known[name].checked(value) for name, value in given.items()})
        except ConfigError as error:
            raise self.error(f"{what and what + ': '}{error}") from None


def _arms(given: Any, file: _File) -> dict[str, Point]:
    """Read the arms by name; one without settings, or in a list, is the paper's of that name (`catalog.ARMS`)."""
    if given is None:
        return {"": {}}
    listed = isinstance(given, list) and all(isinstance(arm, str) for arm in given)
    named = dict.fromkeys(given) if listed else file.mapping(given, "arms")
    if not named:
        raise file.error("arms must name at least one arm")
    arms: dict[str, Point] = {}
    for arm, settings in named.items():
        if settings is None and arm not in ARMS:
            raise UnknownNameError(f"arm without settings in sweep file {file.path}", arm, ARMS)
        arms[arm] = ARMS[arm] if settings is None else file.settings(settings, f"arm {arm}")
    return arms


def _grid(given: Any, file: _File) -> dict[str, list[Any]]:
    values = file.settings(given, "grid")
    for key, each in values.items():
        if not isinstance(each, list) or not each:
            raise file.error(f"grid: {key} must be a list of values, got {shown(each)}")
    return values


def _random(given: Any, file: _File) -> tuple[dict[str, Range | list[Any]], Draws]:
    """Read the settings to draw and the number of draws; without `random`, no settings and one draw."""
    keys = file.mapping(given, "random")
    settings = file.settings(keys.pop("settings", None), "random: settings")
    if given is not None and not (settings and "samples" in keys):
        raise file.error("random must have samples and settings")
    return {key: _range(each, key, file) for key, each in settings.items()}, file.read(Draws, keys, "random")


def _range(given: Any, key: str, file: _File) -> Range | list[Any]:
    """Read a list of values to choose from, or a range."""
    if isinstance(given, list) and given:
        return given
    where = f"random: settings: {key}"
    if not isinstance(given, Mapping) or not {"low", "high"} <= given.keys():
        raise file.error(f"{where} must be a list, or have low and high, got {shown(given)}")
    found = file.read(Range, file.mapping(given, where), where)
    if not found.low < found.high or (found.log and found.low <= 0):
        raise file.error(f"{where} needs low < high, and low > 0 with log")
    return found


def _orders(given: Any, file: _File) -> list[Point]:
    """Read orders of the same tasks; without them every seed has the order of the settings."""
    if given is None:
        return [{}]
    if not isinstance(given, list) or not given or not all(isinstance(order, list) and order for order in given):
        raise file.error(f"orders must be a list of lists of tasks, got {shown(given)}")
    for order in given:
        if sorted(map(str, order)) != sorted(map(str, given[0])):
            raise file.error(f"orders: {given[0]} and {order} are not the same tasks")
    return [{"tasks": tuple(map(str, order))} for order in given]


def _seeds(given: Any, file: _File) -> Sequence[int]:
    listed = given if isinstance(given, list) else [given]
    if not listed or any(type(seed) is not int for seed in listed):
        raise file.error(f"seeds must be their number or a list of them, got {shown(given)}")
    if isinstance(given, list):
        return given
    if not 1 <= given <= _MOST_RUNS:
        raise file.error(f"seeds must be 1 to {_MOST_RUNS:,}, got {shown(given)}")
    return range(given)
