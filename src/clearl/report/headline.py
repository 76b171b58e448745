"""Sum up the results in one sentence with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from clearl.report.arms import base_name, label
from clearl.report.effects import drift
from clearl.report.formatting import number, percent

if TYPE_CHECKING:
    from clearl.report.summary import ArmSummary, Summary

_TASKS_LISTED = 3


def headline(summary: Summary) -> str:
    """Sum up the results in one sentence with numbers."""
    if sentence := _probe_headline(summary):
        return sentence
    arms = {name: arm for name, arm in summary.arms.items() if arm.mean("kept") is not None}
    if not arms:
        return _plain_headline(summary)
    low, high = _contrast(arms)
    tasks = [task for task in arms[low].tasks if None not in (_kept(arms[low], task), _kept(arms[high], task))]
    if low == high or not tasks:
        return f"While a task was away, {_speak(low)} kept {percent(arms[low].mean('kept'))} of its score on it."
    if len(tasks) == 1:
        return _capitalised(
            f"{_speak(low)} kept {percent(_kept(arms[low], tasks[0]))} of its {tasks[0]} score while away, "
            f"{_speak(high)} kept {percent(_kept(arms[high], tasks[0]))}."
        )
    widest = max(tasks, key=lambda task: abs((_kept(arms[high], task) or 0.0) - (_kept(arms[low], task) or 0.0)))
    ends = [percent(_kept(arms[name], widest)) for name in (low, high)]
    gap = f"; the gap was widest on {widest}: {' against '.join(ends)}" if ends[0] != ends[1] else ""
    return (
        f"While a task was away, {_speak(low)} kept {percent(_mean_kept(arms[low], tasks))} of its score on it and "
        f"{_speak(high)} {percent(_mean_kept(arms[high], tasks))} (mean of {len(tasks)} tasks){gap}."
    )


def _mean_kept(arm: ArmSummary, tasks: Sequence[str]) -> float:
    return float(np.mean([_kept(arm, task) or 0.0 for task in tasks]))


def _kept(arm: ArmSummary, task: str) -> float | None:
    stat = arm.stat(task, "kept")
    return stat.mean if stat else None


def _contrast(arms: dict[str, ArmSummary]) -> tuple[str, str]:
    """Return the two arms that the sentence compares: the baseline with CLEAR or else with the arm that scores best.

    An arm that keeps all of the little that it has learnt is not what a reader should take away. Without a baseline it
    is the two that keep least and most.
    """
    others = [name for name in arms if name != "sequential"]
    if "sequential" in arms and others:
        return "sequential", "clear" if "clear" in arms else max(others, key=lambda name: arms[name].normalised or 0.0)
    ranked = sorted(arms, key=lambda name: arms[name].mean("kept") or 0.0)
    return ranked[0], ranked[-1]


def _probe_headline(summary: Summary) -> str | None:
    """Say how much the last position of a probe cost, where it was put at several."""
    drifts = {}
    for base in dict.fromkeys(base_name(name) for name in summary.arms):
        probes = [arm.probe for name, arm in summary.arms.items() if base_name(name) == base and arm.probe]
        if len(probes) > 1 and all(probe.values.size for probe in probes):
            drifts[base] = drift(*(probe.values for probe in probes))
    told = [f"{round(100 * change):+d} % with {_speak(base)}" for base, change in drifts.items() if np.isfinite(change)]
    if not told:
        return None
    return (
        "From its first to its last position, the return on the probe changed by "
        f"{', '.join(told).replace('-', '−')} (of its mean over all)."
    )


def _plain_headline(summary: Summary) -> str:
    """List returns, or normalise them where tasks are many: returns of different tasks have no common mean."""
    told = []
    for name, arm in summary.arms.items():
        means = {task: stats["cumulative"].mean for task, stats in arm.tasks.items()}
        known = {task: mean for task, mean in means.items() if mean is not None}
        if len(known) > _TASKS_LISTED and arm.normalised is not None:
            told.append(f"{label(name)} {arm.normalised:.2f} of the reference, mean of {len(known)} tasks")
        elif known:
            listed = ", ".join(f"{number(mean)} on {task}" for task, mean in list(known.items())[:_TASKS_LISTED])
            told.append(f"{label(name)} {listed}" + (", ..." if len(known) > _TASKS_LISTED else ""))
    if not told:
        return "No evaluation has been recorded yet."
    return f"Mean return over all of training: {'; '.join(told)}."


def _speak(name: str) -> str:
    return label(name).replace(label("sequential"), "the baseline")


def _capitalised(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
