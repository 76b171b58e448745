"""Measure one workload: stages and whole runs in turns, so that other load on the machine affects all alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from clearl import __version__
from clearl.bench.endtoend import MeasuredRun, long_enough, train
from clearl.bench.stages import STAGES, Reading, StageProcesses, ideal_rate
from clearl.bench.workloads import workload
from clearl.config import RunConfig
from clearl.records.run_dir import describe_machine, describe_versions
from clearl.runtimes.host import cores

_STAGE_SHARE = 0.2
"""Seconds of each stage per second of a whole run: a stage alone settles sooner."""
_FIRST_GUESS = 0.7
_PACKAGES = ("torch", "numpy", "ale-py", "minatar", "vizdoom", "mujoco")
_SETTINGS = ("suite", "tasks", "torso", "lstm", "slots", "unroll_steps", "batch_unrolls", "optimizer",
             "eval_every_frames", "eval_episodes", "pairs", "replay_fraction", "replay_ratio",
             "workers", "learner_threads")  # fmt: skip


def measure(
    name: str, *, repeats: int, seconds: float, say: Callable[[str], None], config: RunConfig | None = None
) -> dict[str, Any]:
    """Return all figures of a workload, as JSON types."""
    config = config or workload(name)
    readings: dict[str, list[Reading]] = {stage: [] for stage in STAGES}
    runs: list[MeasuredRun] = []
    ideals: list[float] = []
    with ExitStack() as stack:
        stages = [stack.enter_context(StageProcesses(stage, config)) for stage in STAGES]
        for stage in stages:
            stage.wait_until_ready()
        for repeat in range(repeats):
            for stage in stages:
                readings[stage.name].append(stage.measure(max(0.2, _STAGE_SHARE * seconds)))
            ideals.append(ideal_rate([readings[stage][-1].frames_per_s for stage in STAGES]))
            guess = runs[-1].frames_per_s if runs else _FIRST_GUESS * ideals[-1]
            runs.append(train(config, long_enough(config, seconds, guess), guess))
            share = runs[-1].frames_per_s / ideals[-1]
            say(f"{name} {repeat + 1}/{repeats}: {runs[-1].frames_per_s:,.0f} frames/s, {share:.2f} of the ideal")
    return _result(name, config, readings, runs, ideals)


def _result(
    name: str, config: RunConfig, readings: Mapping[str, list[Reading]], runs: list[MeasuredRun], ideals: list[float]
) -> dict[str, Any]:
    ratios = [run.frames_per_s / ideal for run, ideal in zip(runs, ideals, strict=True)]
    return {
        "v": 1,
        "workload": name,
        "achieved_over_ideal": statistics.median(ratios),
        "repeats": len(runs),
        "frames_per_s": {
            **{stage: spread(reading.frames_per_s for reading in readings[stage]) for stage in STAGES},
            "ideal": spread(ideals),
            "achieved": spread(run.frames_per_s for run in runs),
        },
        "achieved_over_ideal_spread": spread(ratios),
        "breakdown": {
            **breakdown(run.seconds for run in runs),
            "learner alone": shares(_sum(reading.split for reading in readings["learner"])),
        },
        "settings": {key: getattr(config, key) for key in _SETTINGS},
        "cores": cores(),
        "machine": describe_machine(),
        "versions": {"clearl": __version__, **describe_versions(*_PACKAGES)},
    }


def spread(values: Iterable[float]) -> dict[str, Any]:
    """Return median, least, most, and every value."""
    listed = list(values)
    return {"median": statistics.median(listed), "min": min(listed), "max": max(listed), "values": listed}


def breakdown(runs: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Return for each process the share of its measured time that each activity took, over all runs."""
    listed = list(runs)
    processes = dict.fromkeys(process for run in listed for process in run)
    return {process: shares(_sum(run.get(process, {}) for run in listed)) for process in processes}


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return each part of the whole, the largest first."""
    total = sum(seconds.values()) or 1.0
    return {name: spent / total for name, spent in sorted(seconds.items(), key=lambda item: -item[1])}


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, spent in part.items():
            total[name] = total.get(name, 0.0) + spent
    return total
