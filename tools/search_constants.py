"""The constants of EWC, online EWC and Progress & Compress for the laptop comparison, searched on seeds of their own.

`python tools/search_constants.py OUT [--jobs 2]` runs the grid below on the three control schemes, two cycles each,
goes on where it stopped, and writes `docs/results/search/README.md`. What it chooses stands in `reproduce/catalog.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from clearl.config import resolve
from clearl.report.load import load_runs
from clearl.report.metrics import cumulative, final
from clearl.report.retention import kept
from clearl.report.run import Run
from clearl.reproduce.catalog import SCHEMES, PlannedRun
from clearl.reproduce.runner import run_all

ROOT = Path(__file__).resolve().parent.parent
SEEDS = (100, 101)
CYCLES = 2
GRID: dict[str, list[dict[str, float | bool]]] = {
    "baseline": [{}],
    "ewc": [{"ewc_lambda": value} for value in (1e4, 1e5, 1e6)],
    "online-ewc": [{"online_ewc_lambda": value} for value in (2.5e4, 2.5e5, 1e6)],
    "progress-compress": [
        {"online_ewc_lambda": value, "compress_frames": frames, "reset_active": reset}
        for value in (2.5e3, 2.5e5)
        for frames in (30_000, 60_000)
        for reset in (True, False)
    ],
}


def planned() -> dict[str, list[PlannedRun]]:
    """By the name of the grid's point, a run for each seed."""
    points: dict[str, list[PlannedRun]] = {}
    for method, settings in GRID.items():
        for constants in settings:
            name = "-".join([method, *(f"{value:g}" for value in constants.values())])
            flags = {**SCHEMES["laptop"].settings, **constants, "cycles": CYCLES, "method": method}
            points[name] = [
                PlannedRun("search", name, resolve("minatar-schemes", flags={**flags, "seed": seed})) for seed in SEEDS
            ]
    return points


def table(out: Path) -> list[str]:
    """Mean over tasks and seeds of each measure; the best of each method by cumulative score in bold."""
    lines = ["| method | constants | cumulative | by seed | kept | final |", "|---|---|---|---|---|---|"]
    points = planned()
    for method, settings in GRID.items():
        names = ["-".join([method, *(f"{value:g}" for value in constants.values())]) for constants in settings]
        runs = {name: [load_runs([out / run.path])[0] for run in points[name]] for name in names}
        scores = {name: [_over_tasks(run, cumulative) for run in runs[name]] for name in names}
        best = max(names, key=lambda name: float(np.mean(scores[name])))
        for name, constants in zip(names, settings, strict=True):
            what = ", ".join(f"`{key}` {value:g}" for key, value in constants.items()) or "none"
            mean = f"{np.mean(scores[name]):.2f}"
            by_seed = ", ".join(f"{score:.2f}" for score in scores[name])
            others = [np.mean([_over_tasks(run, measure) for run in runs[name]]) for measure in (_kept, final)]
            shown = [f"**{what}**", f"**{mean}**"] if name == best and len(names) > 1 else [what, mean]
            lines.append(f"| {method} | {' | '.join(shown)} | {by_seed} | {others[0]:.2f} | {others[1]:.2f} |")
    return lines


def _kept(run: Run, task: str) -> float | None:
    return kept(run, task, float(run.curves[task].returns[0]))


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
    runs = [run for point in planned().values() for run in point]
    if not run_all(sorted(runs, key=lambda run: run.config.seed), arguments.out, jobs=arguments.jobs):
        return
    seeds = " and ".join(map(str, SEEDS))
    page = [
        "# Constants of the methods that are compared with", "",
        f"Control schemes of MinAtar's Breakout, {CYCLES} cycles of 120,000 frames a visit, seeds {seeds}, which no "
        "reported run uses. `cumulative` is the mean of the evaluated return over all of training, averaged over "
        "tasks; the best of each method is the one that the comparison takes.", "",
        *table(arguments.out), "",
        "```console", "$ python tools/search_constants.py OUT", "```", "",
    ]  # fmt: skip
    target = ROOT / "docs" / "results" / "search"
    target.mkdir(parents=True, exist_ok=True)
    (target / "README.md").write_text("\n".join(page), encoding="utf-8")
    print("\n".join(page))


if __name__ == "__main__":
    main()
