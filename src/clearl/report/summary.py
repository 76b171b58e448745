"""The numbers of a report: arm x task x measure over seeds, and the one sentence that sums them up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clearl.report import metrics
from clearl.report.arms import base_name, label
from clearl.report.effects import drift
from clearl.report.findings import Finding, find
from clearl.report.formatting import percent
from clearl.report.load import Arm, Run
from clearl.report.stats import Interval, Stat, iqm

MEASURES: dict[str, Callable[[Run, str], float | None]] = {
    "cumulative": metrics.cumulative,
    "final": metrics.final,
    "forgetting": metrics.forgetting,
    "kept": metrics.kept,
    "backward_transfer": metrics.backward_transfer,
}
VERSION = 1


@dataclass(frozen=True)
class ArmSummary:
    """What one arm achieved."""

    arm: Arm
    tasks: dict[str, dict[str, Stat]]
    """Task to measure to its values over seeds."""
    iqm: Interval | None
    """Of the cumulative scores, each as a share of the reference arm's."""
    probe: Stat | None = None

    @property
    def boundaries(self) -> str:
        return "known" if self.arm.needs_boundaries else "none"

    def stat(self, task: str, measure: str) -> Stat | None:
        return self.tasks.get(task, {}).get(measure)

    def mean(self, measure: str) -> float | None:
        """The measure's mean over the tasks where it is known."""
        means = [stat.mean for stats in self.tasks.values() if (stat := stats.get(measure)) is not None]
        known = [mean for mean in means if mean is not None]
        return float(np.mean(known)) if known else None

    def to_json(self) -> dict[str, Any]:
        tasks = {task: {name: stat.to_json() for name, stat in stats.items()} for task, stats in self.tasks.items()}
        extra: dict[str, Any] = {"iqm_cumulative": self.iqm.to_json() if self.iqm else None}
        if self.probe is not None:
            extra |= {"probe_position": self.arm.probe_position, "probe_mean": self.probe.to_json()}
        return {"seeds": self.arm.seeds, "tasks": tasks, "boundaries": self.boundaries, **extra}


@dataclass(frozen=True)
class Summary:
    """All that a report says, as data."""

    title: str
    arms: dict[str, ArmSummary]
    tasks: list[str]
    reference: str | None
    """The arm that the normalised scores are shares of."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        arms = {name: arm.to_json() for name, arm in self.arms.items()}
        return {"v": VERSION, "title": self.title, "headline": headline(self), "arms": arms,
                "reference": self.reference, "notes": self.notes}  # fmt: skip


def summarise(arms: Sequence[Arm], *, title: str) -> Summary:
    """Measure every arm on every task."""
    tasks = list(dict.fromkeys(task for arm in arms for task in arm.tasks))
    probes = {run.probe_task for arm in arms for run in arm.runs if run.probe_position is not None}
    tasks.sort(key=lambda task: task in probes)
    separate = [run for arm in arms if arm.name == "separate" for run in arm.runs]
    reference = _reference(arms, tasks)
    summaries = {}
    for arm in arms:
        stats = {task: _measure(arm, task, separate) for task in arm.tasks}
        summaries[arm.name] = ArmSummary(arm, stats, _normalised_iqm(arm, reference, tasks), _probe(arm))
    return Summary(title, summaries, tasks, reference.name if reference else None, find(arms), _notes(arms))


def headline(summary: Summary) -> str:
    """One sentence that says in numbers what was seen."""
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
    return (
        f"While a task was away, {_speak(low)} kept {percent(_mean_kept(arms[low], tasks))} of its score on it and "
        f"{_speak(high)} {percent(_mean_kept(arms[high], tasks))} (mean of {len(tasks)} tasks); the gap was widest on "
        f"{widest}: {percent(_kept(arms[low], widest))} against {percent(_kept(arms[high], widest))}."
    )


def _mean_kept(arm: ArmSummary, tasks: Sequence[str]) -> float:
    return float(np.mean([_kept(arm, task) or 0.0 for task in tasks]))


def _kept(arm: ArmSummary, task: str) -> float | None:
    stat = arm.stat(task, "kept")
    return stat.mean if stat else None


def _contrast(arms: dict[str, ArmSummary]) -> tuple[str, str]:
    """The two arms that the sentence compares: the baseline with CLEAR or else with the arm that scores best.

    An arm that keeps all of the little that it has learnt is not what a reader should take away. Without a baseline it
    is the two that keep least and most.
    """
    others = [name for name in arms if name != "sequential"]
    if "sequential" in arms and others:
        return "sequential", "clear" if "clear" in arms else max(
            others, key=lambda n: arms[n].mean("cumulative") or 0.0
        )
    ranked = sorted(arms, key=lambda name: arms[name].mean("kept") or 0.0)
    return ranked[0], ranked[-1]


def _probe_headline(summary: Summary) -> str | None:
    """Where a probe was put at several positions, how much the last one cost."""
    drifts = {}
    for base in dict.fromkeys(base_name(name) for name in summary.arms):
        probes = [arm.probe for name, arm in summary.arms.items() if base_name(name) == base and arm.probe]
        if len(probes) > 1 and all(probe.values.size for probe in probes):
            drifts[base] = drift(*(probe.values for probe in probes))
    if not drifts:
        return None
    listed = ", ".join(f"{round(100 * change):+d} % with {_speak(base)}" for base, change in drifts.items())
    told = f"From its first to its last position, the return on the probe changed by {listed} (of its mean over all)."
    return told.replace("-", "−")


def _plain_headline(summary: Summary) -> str:
    scores = {name: mean for name, arm in summary.arms.items() if (mean := arm.mean("cumulative")) is not None}
    if not scores:
        return "No evaluation has been recorded yet."
    listed = ", ".join(f"{label(name)} {score:.2f}" for name, score in scores.items())
    return f"Mean return over all of training, averaged over the tasks: {listed}."


def _speak(name: str) -> str:
    return label(name).replace(label("sequential"), "the baseline")


def _capitalised(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _measure(arm: Arm, task: str, separate: list[Run]) -> dict[str, Stat]:
    stats = {name: Stat(tuple(measure(run, task) for run in arm.runs)) for name, measure in MEASURES.items()}
    if separate and arm.runs[0].protocol not in ("separate", "simultaneous"):
        stats["forward_transfer"] = Stat(tuple(metrics.forward_transfer(run, task, separate) for run in arm.runs))
    return stats


def _probe(arm: Arm) -> Stat | None:
    return None if arm.probe_position is None else Stat(tuple(metrics.probe_mean(run) for run in arm.runs))


def _reference(arms: Sequence[Arm], tasks: Sequence[str]) -> Arm | None:
    """What scores are shares of: training without forgetting where it was run, else the arm that did best."""
    named = {arm.name: arm for arm in arms}
    for name in ("simultaneous", "separate"):
        if name in named and np.isfinite(_means(named[name], tasks)).any():
            return named[name]
    measured = [arm for arm in arms if np.isfinite(_means(arm, tasks)).any()]
    return max(measured, key=lambda arm: float(np.nanmean(_means(arm, tasks))), default=None)


def _means(arm: Arm, tasks: Sequence[str]) -> np.ndarray:
    means = [Stat(tuple(metrics.cumulative(run, task) for run in arm.runs)).mean for task in tasks]
    return np.array([np.nan if mean is None else mean for mean in means])


def _normalised_iqm(arm: Arm, reference: Arm | None, tasks: Sequence[str]) -> Interval | None:
    if reference is None:
        return None
    shared = [task for task, mean in zip(tasks, _means(reference, tasks), strict=True) if mean > 0]
    if not shared:
        return None
    scale = _means(reference, shared)
    rows = [[metrics.cumulative(run, task) for task in shared] for run in arm.runs]
    whole = np.array([row for row in rows if None not in row], dtype=float).reshape(-1, len(shared))
    return iqm(whole / scale)


def _notes(arms: Sequence[Arm]) -> list[str]:
    notes = []
    for arm in arms:
        for run in arm.runs:
            who = f"{label(arm.name)}, seed {run.seed}"
            notes += [f"{who}: {note}." for note in run.notes]
            if not run.curves:
                notes.append(f"{who}: nothing has been evaluated yet.")
            elif not run.is_finished:
                share = (
                    f"at {run.seen_frames / run.planned_frames:.0%} of its frames" if run.planned_frames else "early"
                )
                notes.append(f"{who}: not finished, measured {share}; left out of the findings.")
        if len(arm.runs) == 1:
            continue
        missing = [task for task in arm.tasks if any(task not in run.curves for run in arm.runs if run.curves)]
        notes += [f"{label(arm.name)}: not every seed evaluated {task}." for task in missing]
    return notes
