"""A sweep file: arms, a grid or random draws over settings, and seeds, as the runs that they stand for. Pure.

    preset: minatar
    settings: {tasks: [breakout, space_invaders], cycles: 2, frames_per_visit: 700_000}
    arms: {sequential: {method: baseline}, clear: {method: clear}}
    grid: {entropy_weight: [0.01, 0.03]}
    random: {samples: 8, seed: 0, settings: {learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}}}
    orders: [[breakout, space_invaders], [space_invaders, breakout]]
    seeds: 6

Every arm is run at every point of the grid and at every random draw, with every seed. Seeds take turns with `orders`:
the first seed has its tasks in the first order, the next seed in the second.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearl.config import load_yaml, resolve
from clearl.errors import ConfigError, UnknownNameError
from clearl.reproduce.catalog import ARMS
from clearl.reproduce.planned import PlannedRun, config_path, run_command
from clearl.seeding import generator

_KEYS = ("title", "preset", "settings", "arms", "grid", "random", "orders", "seeds")
_RANGE_KEYS = ("low", "high", "log", "whole")
_MOST_RUNS = 100_000

Point = dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """A sweep file, read and checked."""

    name: str
    title: str
    runs: tuple[PlannedRun, ...]
    """Seed by seed, so that an interrupted sweep holds whole comparisons."""


def load_sweep(path: Path) -> Sweep:
    """Read a sweep file; every run's settings are checked before anything starts."""
    content = load_yaml(path)
    for key in content:
        if key not in _KEYS:
            raise UnknownNameError(f"key of sweep file {path}", str(key), _KEYS)
    name = re.sub(r"[^\w.+-]", "-", path.stem)
    arms = _arms(content.get("arms"), path)
    points = [{**one, **two} for one in _grid(content.get("grid"), path) for two in _draws(content.get("random"), path)]
    seeds = _seeds(content.get("seeds", 1), path)
    if len(arms) * len(points) * len(seeds) > _MOST_RUNS:
        raise ConfigError(f"sweep file {path} stands for more than {_MOST_RUNS:,} runs")
    shared = _mapping(content.get("settings"), "settings", path)
    preset = content.get("preset")
    orders = itertools.cycle(_orders(content.get("orders"), path))
    runs = [
        PlannedRun(
            name, _name(arm, point), resolve(preset, flags={**shared, **order, **settings, **point, "seed": seed})
        )
        for seed, order in zip(seeds, orders, strict=False)
        for arm, settings in arms.items()
        for point in points
    ]
    _refuse_twins(runs, path)
    return Sweep(name, str(content.get("title") or name), tuple(runs))


def _arms(given: Any, path: Path) -> dict[str, Point]:
    """Read the arms by name; one without settings, or in a list, is the paper's of that name (`catalog.ARMS`)."""
    if given is None:
        return {"": {}}
    named = dict.fromkeys(given) if isinstance(given, list) else _mapping(given, "arms", path)
    arms: dict[str, Point] = {}
    for arm, settings in named.items():
        if settings is None and arm not in ARMS:
            raise UnknownNameError(f"arm without settings in sweep file {path}", str(arm), ARMS)
        arms[str(arm)] = ARMS[arm] if settings is None else _mapping(settings, f"arm {arm}", path)
    return arms


def _grid(given: Any, path: Path) -> list[Point]:
    values = _mapping(given, "grid", path)
    for key, each in values.items():
        if not isinstance(each, list) or not each:
            raise ConfigError(f"sweep file {path}: grid: {key} must be a list of values, got {each!r}")
    return [dict(zip(values, choice, strict=True)) for choice in itertools.product(*values.values())]


def _draws(given: Any, path: Path) -> list[Point]:
    if given is None:
        return [{}]
    random = _mapping(given, "random", path)
    ranges = _mapping(random.get("settings"), "random: settings", path)
    samples = random.get("samples")
    if not isinstance(samples, int) or samples < 1 or not ranges or random.keys() - {"samples", "seed", "settings"}:
        raise ConfigError(f"sweep file {path}: random takes samples (1 or more), settings, and perhaps a seed")
    rng = generator(int(random.get("seed", 0)), "sweep")
    return [{key: _draw(rng, each, key, path) for key, each in ranges.items()} for _ in range(samples)]


def _draw(rng: Any, given: Any, key: str, path: Path) -> Any:
    """Return one value out of a list, or between `low` and `high`, evenly or evenly in the logarithm."""
    if isinstance(given, list) and given:
        return given[int(rng.integers(len(given)))]
    if not isinstance(given, Mapping) or given.keys() - set(_RANGE_KEYS) or not {"low", "high"} <= given.keys():
        raise ConfigError(f"sweep file {path}: random: {key} must be a list, or have low and high, got {given!r}")
    low, high = float(given["low"]), float(given["high"])
    if not low < high or (given.get("log") and low <= 0):
        raise ConfigError(f"sweep file {path}: random: {key} needs low < high, and low > 0 with log")
    value = math.exp(rng.uniform(math.log(low), math.log(high))) if given.get("log") else rng.uniform(low, high)
    return round(value) if given.get("whole") else float(f"{value:.4g}")


def _orders(given: Any, path: Path) -> list[Point]:
    """Read orders of the same tasks; without them every seed has the order of the settings."""
    if given is None:
        return [{}]
    if not isinstance(given, list) or not given or not all(isinstance(order, list) and order for order in given):
        raise ConfigError(f"sweep file {path}: orders must be a list of lists of tasks, got {given!r}")
    for order in given:
        if sorted(map(str, order)) != sorted(map(str, given[0])):
            raise ConfigError(f"sweep file {path}: orders: {given[0]} and {order} are not the same tasks")
    return [{"tasks": tuple(map(str, order))} for order in given]


def _seeds(given: Any, path: Path) -> list[int]:
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return list(range(given))
    if isinstance(given, list) and given and all(isinstance(seed, int) for seed in given):
        return given
    raise ConfigError(f"sweep file {path}: seeds must be their number or a list of them, got {given!r}")


def _mapping(given: Any, what: str, path: Path) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"sweep file {path}: {what} must map names to values, got {type(given).__name__}")
    return {str(key): value for key, value in given.items()}


def _name(arm: str, point: Point) -> str:
    """Name an arm as the report names arms that differ in a setting: `clear [entropy_weight=0.03]`.

    Paths and reports add the position of a probe themselves, so that all positions are probes of one arm.
    """
    shown = ", ".join(f"{key}={_short(value)}" for key, value in point.items() if key != "probe_position")
    return f"{arm} [{shown}]".strip() if shown else arm or "run"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _refuse_twins(runs: list[PlannedRun], path: Path) -> None:
    for place, twins in itertools.groupby(sorted(runs, key=lambda run: run.path), key=lambda run: run.path):
        if len(list(twins)) > 1:
            raise ConfigError(f"sweep file {path} names the run {place.removeprefix('runs/')} twice")


def command_lines(runs: tuple[PlannedRun, ...], out: Path) -> Iterator[str]:
    """Yield one line of shell for each run, for a batch system.

    `clearl sweep` writes the config files that they name.
    """
    for run in runs:
        path = out / run.path
        yield shlex.join(run_command(run.config, config_path(path), path, arm=run.arm))
