"""Lambdas of EWC, online EWC and Progress & Compress for the laptop comparison, searched on seeds of their own.

`python tools/search_constants.py OUT [--jobs 2]` goes on where it stopped and writes `docs/results/search/README.md`.
Of a lifetime it uses at most the first tenth of the frames, since a user must choose before living through it. A grid
grows by its own step until the best value lies inside. What it chooses stands in `reproduce/catalog.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clearl.config import RunConfig, resolve
from clearl.report.load import load_runs
from clearl.report.metrics import cumulative, final
from clearl.report.retention import kept
from clearl.report.run import Run
from clearl.reproduce.catalog import SCHEMES
from clearl.reproduce.planned import PlannedRun
from clearl.reproduce.runner import run_all

ROOT = Path(__file__).resolve().parent.parent
SEQUENCE = SCHEMES["laptop"]
SEEDS = (100, 101, 102)
"""No reported run uses them: those count from 0."""
SHARE = 0.1
"""The share of a lifetime's frames that may be used."""
MOST_STEPS = 6
"""Values that a grid may grow by; a best value that is still at an edge is then said to be so."""


@dataclass(frozen=True)
class Search:
    """One method's lambda, on a grid of powers of `step`."""

    method: str
    setting: str
    start: tuple[float, ...]
    step: float
    others: Mapping[str, Any]


SEARCHES = (
    Search("ewc", "ewc_lambda", (300.0, 1e3, 3e3, 1e4), 10**0.5, {}),
    Search("online-ewc", "online_ewc_lambda", (25.0, 75.0, 175.0), 3.0, {}),
    Search("progress-compress", "online_ewc_lambda", (25.0, 75.0, 175.0), 3.0, {"reset_active": True}),
    Search("progress-compress", "online_ewc_lambda", (25.0, 75.0, 175.0), 3.0, {"reset_active": False}),
)


def tuning_settings(config: RunConfig) -> dict[str, Any]:
    """Return the first visits of the lifetime of `config`, at least two of them, in at most a tenth of its frames."""
    visit = config.frames_per_visit
    assert visit is not None, "a lifetime is counted in frames"
    budget = int(SHARE * config.cycles * len(config.tasks) * visit)
    visits = min(len(config.tasks), max(2, budget // visit))
    return {"tasks": config.tasks[:visits], "cycles": 1, "frames_per_visit": min(visit, budget // visits)}


def next_value(scores: Mapping[float, float], step: float) -> float | None:
    """Return the value beyond the edge at which the best score lies; None where it lies inside."""
    values = sorted(scores)
    best = max(values, key=lambda value: scores[value])
    if best == values[0]:
        return best / step
    return best * step if best == values[-1] else None


def search(one: Search, out: Path, jobs: int) -> dict[float, list[Run]] | None:
    """Return the runs by value, until the best lies inside or the grid has grown enough; None if stopped."""
    tried: dict[float, list[Run]] = {}
    waiting: list[float] = list(one.start)
    while waiting:
        planned = {value: [_planned(one, value, seed) for seed in SEEDS] for value in waiting}
        if not run_all([run for runs in planned.values() for run in runs], out, jobs=jobs):
            return None
        tried |= {value: [load_runs([out / run.path])[0] for run in runs] for value, runs in planned.items()}
        beyond = next_value({value: _mean(runs, cumulative) for value, runs in tried.items()}, one.step)
        grown = len(tried) - len(one.start)
        waiting = [] if beyond is None or grown >= MOST_STEPS else [float(f"{beyond:.3g}")]
    return tried


def _planned(one: Search, value: float, seed: int) -> PlannedRun:
    life = resolve(SEQUENCE.preset, flags=SEQUENCE.settings)
    flags = {**SEQUENCE.settings, **one.others, **tuning_settings(life), "method": one.method, one.setting: value}
    name = "-".join([one.method, *(f"{key}={given}" for key, given in one.others.items()), f"{value:g}"])
    return PlannedRun("search", name, resolve(SEQUENCE.preset, flags={**flags, "seed": seed}))


def table(one: Search, tried: Mapping[float, Sequence[Run]]) -> list[str]:
    """Return a line for each value; the best by cumulative score in bold."""
    scores = {value: _mean(runs, cumulative) for value, runs in tried.items()}
    best, lines = max(sorted(scores), key=lambda value: scores[value]), []
    others = "".join(f", `{key}` {given}" for key, given in one.others.items())
    edge = " (at the edge)" if next_value(scores, one.step) is not None else ""
    for value in sorted(tried):
        shown = f"**{value:g}**{edge}" if value == best else f"{value:g}"
        by_seed = ", ".join(f"{_over_tasks(run, cumulative):.2f}" for run in tried[value])
        rest = " | ".join(f"{_mean(tried[value], measure):.2f}" for measure in (_kept, final))
        lines.append(f"| {one.method}{others} | {shown} | {scores[value]:.2f} | {by_seed} | {rest} |")
    return lines


def _kept(run: Run, task: str) -> float | None:
    return kept(run, task, float(run.curves[task].returns[0]))


def _mean(runs: Sequence[Run], measure: Callable[[Run, str], float | None]) -> float:
    return float(np.mean([_over_tasks(run, measure) for run in runs]))


def _over_tasks(run: Run, measure: Callable[[Run, str], float | None]) -> float:
    values = [measure(run, task) for task in sorted(run.curves)]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


def main() -> None:
    """Run what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    lines = []
    for one in SEARCHES:
        tried = search(one, arguments.out, arguments.jobs)
        if tried is None:
            return
        lines += table(one, tried)
    used = tuning_settings(resolve(SEQUENCE.preset, flags=SEQUENCE.settings))
    page = [
        "# Lambdas of the methods that are compared with", "",
        f"{', '.join(used['tasks'])}, one visit of {used['frames_per_visit']:,} frames each: at most {SHARE:.0%} of "
        f"the frames of a reported run. Seeds {', '.join(map(str, SEEDS))}, which no reported run uses. `cumulative` "
        "is the mean of the evaluated return over these frames, averaged over tasks; a grid grew until its best was "
        "inside.", "",
        "| method | lambda | cumulative | by seed | kept | final |", "|---|---|---|---|---|---|", *lines, "",
        "```console", "$ python tools/search_constants.py OUT", "```", "",
    ]  # fmt: skip
    target = ROOT / "docs" / "results" / "search"
    target.mkdir(parents=True, exist_ok=True)
    (target / "README.md").write_text("\n".join(page), encoding="utf-8")
    print("\n".join(page))


if __name__ == "__main__":
    main()
