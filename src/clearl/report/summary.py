"""The numbers of a report: arm x task x measure over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clearl.report import continual_world, metrics, retention
from clearl.report.arms import label
from clearl.report.findings import Finding, find
from clearl.report.headline import headline
from clearl.report.oracle import learning_curve, oracle, regret
from clearl.report.run import Arm, Run
from clearl.report.scales import Scale, task_scales
from clearl.report.stats import Interval, Stat, iqm

VERSION = 1
_MOST_SEGMENTS = 1000
"""A longer plan has no matrix in the JSON: with a hundred thousand switches it would be most of the file."""
ALONE = ("separate", "simultaneous")
"""Protocols in which no task is ever away."""


@dataclass(frozen=True)
class ArmSummary:
    """The measures of one arm."""

    arm: Arm
    tasks: dict[str, dict[str, Stat]]
    """Task to measure to its values over seeds."""
    iqm: Interval | None
    """Interquartile mean of the normalised scores: cumulative, from the floor, as a share of the reference arm's."""
    normalised: float | None = None
    """The mean of the normalised scores over tasks and seeds."""
    probe: Stat | None = None
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """The normalised score of each seed, mean over the tasks."""

    @property
    def boundaries(self) -> str:
        return "known" if self.arm.needs_boundaries else "none"

    def stat(self, task: str, measure: str) -> Stat | None:
        return self.tasks.get(task, {}).get(measure)

    def mean(self, measure: str) -> float | None:
        """Return the measure's mean over the tasks where it is known."""
        means = [stat.mean for stats in self.tasks.values() if (stat := stats.get(measure)) is not None]
        known = [mean for mean in means if mean is not None]
        return float(np.mean(known)) if known else None

    def matrix(self) -> dict[str, list[float | None]]:
        """Build the task x time matrix: the mean score on each task at the end of each segment."""
        table = {}
        for task in self.tasks:
            rows = [retention.segment_scores(run, task) for run in self.arm.runs]
            columns = [[row[at] for row in rows if at < len(row)] for at in range(max(map(len, rows), default=0))]
            known = [[value for value in column if value is not None] for column in columns]
            table[task] = [float(np.mean(values)) if values else None for values in known]
        return table

    def to_json(self) -> dict[str, Any]:
        tasks = {task: {name: stat.to_json() for name, stat in stats.items()} for task, stats in self.tasks.items()}
        longest = max(self.arm.runs, key=lambda run: len(run.spans))
        spans = [{"tasks": list(span.tasks), "end_frames": span.end} for span in longest.spans if span.end < np.inf]
        extra: dict[str, Any] = {
            "iqm_cumulative": self.iqm.to_json() if self.iqm else None,
            "normalised_cumulative": self.normalised,
            "matrix": {"segments": spans, "tasks": self.matrix()} if len(spans) <= _MOST_SEGMENTS else None,
        }
        if self.probe is not None:
            extra |= {"probe_position": self.arm.probe_position, "probe_mean": self.probe.to_json()}
        return {"seeds": self.arm.seeds, "tasks": tasks, "boundaries": self.boundaries, **extra}


@dataclass(frozen=True)
class Summary:
    """The contents of a report, as data."""

    title: str
    arms: dict[str, ArmSummary]
    tasks: list[str]
    reference: str | None
    """The arm that the normalised scores are shares of."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scales: dict[str, Scale] = field(default_factory=dict)
    oracle: dict[str, float] = field(default_factory=dict)
    """Task to the cumulative score of the sequential arms' schedule with no forgetting at all."""

    @property
    def oracle_share(self) -> float | None:
        """The oracle's mean normalised score."""
        if self.reference is None:
            return None
        shares = [
            (best - self.scales[task].floor) / (level - self.scales[task].floor)
            for task, best in self.oracle.items()
            if (level := self.arms[self.reference].tasks[task]["cumulative"].mean) is not None
            and level > self.scales[task].floor
        ]
        return float(np.mean(shares)) if shares else None

    def to_json(self) -> dict[str, Any]:
        arms = {name: arm.to_json() for name, arm in self.arms.items()}
        scales = {task: {"floor": scale.floor, "top": scale.top} for task, scale in self.scales.items()}
        return {"v": VERSION, "title": self.title, "headline": headline(self), "arms": arms,
                "reference": self.reference, "scales": scales, "notes": self.notes,
                "oracle": {"cumulative": self.oracle, "normalised": self.oracle_share}}  # fmt: skip


def summarise(arms: Sequence[Arm], *, title: str, notes: Sequence[str] = ()) -> Summary:
    """Measure every arm on every task."""
    in_turn = sorted(arms, key=lambda arm: arm.runs[0].protocol in ALONE)  # a schedule says the order, files do not
    tasks = list(dict.fromkeys(task for arm in in_turn for task in arm.tasks))
    probes = {run.probe_task for arm in arms for run in arm.runs if run.probe_position is not None}
    tasks.sort(key=lambda task: task in probes)
    scales = task_scales(arms, tasks)
    separate = [run for arm in arms if arm.name == "separate" for run in arm.runs]
    reference = _reference(arms, scales)
    summaries = {}
    for arm in arms:
        stats = {task: _measure(arm, task, scales[task], separate) for task in arm.tasks}
        shares = _normalised(arm, reference, scales)
        mean = float(shares.mean()) if shares.size else None
        summaries[arm.name] = ArmSummary(
            arm, stats, iqm(shares), mean, _probe(arm), shares.mean(axis=1) if shares.size else np.zeros(0)
        )
    return Summary(
        title, summaries, tasks, reference.name if reference else None, find(arms), [*notes, *_notes(arms, scales)],
        scales, _oracle(arms, reference, tasks),
    )  # fmt: skip


def _measure(arm: Arm, task: str, scale: Scale, separate: list[Run]) -> dict[str, Stat]:
    """Return every measure of docs/metrics.md that the runs have."""

    def stat(measure: Any, *more: Any) -> Stat:
        return Stat(tuple(measure(run, task, *more) for run in arm.runs))

    stats = {
        "cumulative": stat(metrics.cumulative),
        "final": stat(metrics.final),
        "forgetting": stat(retention.forgetting),
        "kept": stat(retention.kept, scale.floor),
        "area_lost": stat(retention.area_lost, scale.floor),
        "backward_transfer": stat(metrics.backward_transfer),
        "recovery_frames": stat(metrics.recovery_frames, scale.floor),
    }
    if any(task in run.success for run in arm.runs):
        stats["success"] = stat(metrics.final_success)
    if arm.runs[0].protocol in ALONE:
        return stats
    stats["cw_performance"] = stat(continual_world.performance, scale)
    stats["cw_forgetting"] = stat(continual_world.forgetting, scale)
    if separate:
        stats["forward_transfer"] = stat(metrics.forward_transfer, separate)
        stats["cw_forward_transfer"] = stat(continual_world.forward_transfer, scale, separate)
        stats["regret"] = stat(regret, learning_curve(separate, task))
    return stats


def _probe(arm: Arm) -> Stat | None:
    return None if arm.probe_position is None else Stat(tuple(metrics.probe_mean(run) for run in arm.runs))


def _reference(arms: Sequence[Arm], scales: dict[str, Scale]) -> Arm | None:
    """Choose the arm that scores are shares of: training without forgetting if it was run, else the best arm."""
    tasks = list(scales)
    above = {arm.name: _means(arm, tasks) - [scale.floor for scale in scales.values()] for arm in arms}
    known = [arm for arm in arms if np.isfinite(above[arm.name]).any()]
    for name in ALONE[::-1]:
        if found := [arm for arm in known if arm.name == name]:
            return found[0]
    best = np.array([max((above[arm.name][at] for arm in known if np.isfinite(above[arm.name][at])), default=np.nan)
                     for at in range(len(tasks))])  # fmt: skip
    usable = best > 0
    if not usable.any():
        return known[0] if known else None
    return max(known, key=lambda arm: float(np.nan_to_num(above[arm.name][usable] / best[usable]).mean()))


def _means(arm: Arm, tasks: Sequence[str]) -> np.ndarray:
    means = [Stat(tuple(metrics.cumulative(run, task) for run in arm.runs)).mean for task in tasks]
    return np.array([np.nan if mean is None else mean for mean in means])


def _normalised(arm: Arm, reference: Arm | None, scales: dict[str, Scale]) -> np.ndarray:
    """Return cumulative scores from the floor [seeds, tasks] as shares of the reference's; tasks that it never learnt
    and runs that lack a task are left out."""
    if reference is None:
        return np.zeros((0, 0))
    tasks = list(scales)
    floors = np.array([scale.floor for scale in scales.values()])
    levels = _means(reference, tasks) - floors
    usable = [place for place in range(len(tasks)) if levels[place] > 0 and tasks[place] in arm.tasks]
    if not usable:
        return np.zeros((0, 0))
    rows = [[metrics.cumulative(run, tasks[place]) for place in usable] for run in arm.runs]
    whole = np.array([row for row in rows if None not in row], dtype=float).reshape(-1, len(usable))
    return (whole - floors[usable]) / levels[usable]


def _oracle(arms: Sequence[Arm], reference: Arm | None, tasks: Sequence[str]) -> dict[str, float]:
    """Return the oracle on the schedule that all other arms share.

    Nothing where they do not, or nothing to learn from.
    """
    others = [run for arm in arms for run in arm.runs if run.protocol not in ALONE and run.end_frames > 0]
    plans = {tuple((span.tasks, span.start) for span in run.spans) for run in others}
    if reference is None or reference.name not in ALONE or len(plans) != 1:
        return {}
    longest = max(others, key=lambda run: run.end_frames)
    scores = {}
    for task in tasks:
        learnt = learning_curve(reference.runs, task)
        best = None if learnt is None else oracle(longest, task, learnt)
        scores |= {} if best is None else {task: best}
    return scores


def _notes(arms: Sequence[Arm], scales: dict[str, Scale]) -> list[str]:
    notes = []
    runs = [run for arm in arms for run in arm.runs]
    away = [absence for run in runs for task in run.curves for absence in retention.absences(run, task)]
    if any(not absence.at_switches for absence in away):
        notes.append(
            "Not every run was evaluated exactly at its switches: there, what was kept compares the evaluations next "
            "before the switches, which are not switch evaluations and are noisier."
        )
    guessed = [task for task, scale in scales.items() if not scale.is_measured and any(task in r.curves for r in runs)]
    if guessed:
        notes.append(f"No evaluation before training on {_some(guessed)}: scores count from 0, or the least return.")
    if any(run.has_two_columns for run in runs):
        notes.append(
            "Progress & Compress: while a task is trained, the return of the active column is plotted; while it is "
            "away, that of the knowledge base."
        )
    if skipped := sum(run.skipped for run in runs):
        notes.append(
            f"{skipped} evaluations that were due between switches were skipped because the evaluator lagged; "
            "--eval-wait makes training wait for them."
        )
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


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
