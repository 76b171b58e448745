"""Expand a sweep file (arms, a grid or random draws over settings, seeds) into the runs that it describes. Pure.

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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.random import Generator

from clearl.config import resolve
from clearl.errors import ConfigError
from clearl.reproduce.planned import PlannedRun, config_path, run_command
from clearl.reproduce.sweep_file import Point, Range, Study, read_study
from clearl.seeding import generator


@dataclass(frozen=True)
class Sweep:
    """A sweep file, read and checked."""

    name: str
    title: str
    runs: tuple[PlannedRun, ...]
    """Seed by seed, so that an interrupted sweep holds whole comparisons."""


def load_sweep(path: Path) -> Sweep:
    """Read a sweep file; every run's settings are checked before anything starts."""
    study = read_study(path)
    points = [{**one, **two} for one in _combinations(study) for two in _drawn(study)]
    runs = [
        _planned(path, _name(arm, point), study, {**order, **settings, **point, "seed": seed})
        for seed, order in zip(study.seeds, itertools.cycle(study.orders), strict=False)
        for arm, settings in study.arms.items()
        for point in points
    ]
    _refuse_twins(runs, path)
    return Sweep(_sequence(path), study.head.title or _sequence(path), tuple(runs))


def _sequence(path: Path) -> str:
    """Return the name of a sweep file in paths of runs and reports."""
    return re.sub(r"[^\w.+-]", "-", path.stem)


def _planned(path: Path, arm: str, study: Study, own: Point) -> PlannedRun:
    try:
        return PlannedRun(_sequence(path), arm, resolve(study.head.preset, flags={**study.settings, **own}))
    except ConfigError as error:
        raise ConfigError(f"sweep file {path}: {arm}: {error}") from None


def _combinations(study: Study) -> Iterator[Point]:
    for choice in itertools.product(*study.grid.values()):
        yield dict(zip(study.grid, choice, strict=True))


def _drawn(study: Study) -> Iterator[Point]:
    rng = generator(study.draws.seed, "sweep")
    for _ in range(study.draws.samples):
        yield {key: _draw(rng, each) for key, each in study.ranges.items()}


def _draw(rng: Generator, given: Range | list[Any]) -> Any:
    """Return one value of a list, or one between `low` and `high`, even or even in the logarithm."""
    if isinstance(given, list):
        return given[int(rng.integers(len(given)))]
    low, high = given.low, given.high
    value = math.exp(rng.uniform(math.log(low), math.log(high))) if given.log else rng.uniform(low, high)
    return round(value) if given.whole else float(f"{value:.4g}")


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
