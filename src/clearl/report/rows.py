"""Rows of `metrics.jsonl` as curves, segments and evaluations at switches; odd rows are counted as damaged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clearl.records.names import clean_name
from clearl.records.schema import Row
from clearl.report.run import Curve, Span

_LARGEST = 1e30
"""Beyond this a number is taken for damage: sums and squares must stay finite."""


@dataclass(frozen=True)
class EvalPoint:
    """One `eval` row, its frames on the common axis."""

    task: str
    frames: float
    value: float
    episodes: float
    segment: int | None
    success: float | None


@dataclass
class Parsed:
    """The contents of one run's rows."""

    evaluations: list[EvalPoint] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    planned_frames: float | None = None
    seen_frames: float = 0.0
    wall_s: float = 0.0
    speeds: list[float] = field(default_factory=list)
    memory_nbytes: float | None = None
    odd_rows: int = 0
    compress_frames: float = 0.0
    """Taken out of the axis."""
    has_secondary: bool = False
    """True if the task in training has rows of a network that is not plotted."""
    skipped: int = 0
    """Evaluations that were due and left out."""


def parse_rows(rows: Iterable[Row], scale: float) -> Parsed:
    """Read every row that the report uses; `scale` turns a run's frames into those of the common axis."""
    parsed = Parsed()
    segments: dict[int, Row] = {}
    first_ends: dict[int, float] = {}
    for row in rows:
        try:
            if row["kind"] == "eval":
                _take_eval(parsed, row, scale)
            elif row["kind"] == "train":
                _take_train(parsed, row, scale)
            elif row["kind"] == "segment":
                _take_segment(row, segments, first_ends)
            elif row["kind"] == "summary" and "memory_nbytes" in row:
                parsed.memory_nbytes = sum(_count(nbytes) for nbytes in row["memory_nbytes"].values())
        except (TypeError, ValueError, OverflowError, KeyError, AttributeError):
            parsed.odd_rows += 1
    parsed.spans = [_span(index, row, scale) for index, row in sorted(segments.items())]
    if first_ends and all(math.isfinite(span.end) for span in parsed.spans):
        parsed.planned_frames = first_ends[max(first_ends)] * scale
    return parsed


def planned_spans(plan: Any, scale: float) -> list[Span]:
    """Return the segments of the plan in the meta data, for a run that has not recorded anything."""
    spans: list[Span] = []
    start = 0.0
    try:
        for index, segment in enumerate(plan["segments"]):
            frames = segment.get("frames")
            end = start + (math.inf if frames is None else _count(frames) * scale)
            spans.append(Span(tuple(map(clean_name, segment["tasks"])), start, end, index))
            start = end
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return []
    return spans


def _count(value: Any) -> float:
    """Return a number of frames or bytes; raise `ValueError` unless it is finite and not below zero."""
    if (number := finite(value)) < 0:
        raise ValueError("a count below zero")
    return number


def finite(value: Any) -> float:
    """Return the number as a float; `ValueError` where it is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"not a number: {value!r:.40}")
    if not abs(value) <= _LARGEST:
        raise ValueError("a number that is not finite, or too large")
    return float(value)


def curves(evaluations: Sequence[EvalPoint], *, end: float) -> dict[str, Curve]:
    """Return the evaluated return of each task.

    The last round may overshoot the plan; what it measured is the score at the plan's end.
    """
    points: dict[str, list[tuple[float, float, float]]] = {}
    for one in evaluations:
        points.setdefault(one.task, []).append((min(one.frames, end), one.value, one.episodes))
    return {task: _curve(np.array(values)) for task, values in points.items()}


def success_curves(evaluations: Sequence[EvalPoint], *, end: float) -> dict[str, Curve]:
    """Return the success rate of each task whose environment says what success is."""
    points: dict[str, list[tuple[float, float, float]]] = {}
    for one in evaluations:
        if one.success is not None:
            points.setdefault(one.task, []).append((min(one.frames, end), one.success, one.episodes))
    return {task: _curve(np.array(values)) for task, values in points.items()}


def switch_returns(evaluations: Sequence[EvalPoint]) -> dict[str, dict[int, float]]:
    """Map task and segment to the return evaluated at the segment's end; of a repeated evaluation, the last."""
    table: dict[str, dict[int, float]] = {}
    for one in evaluations:
        if one.segment is not None:
            table.setdefault(one.task, {})[one.segment] = one.value
    return table


def _take_eval(parsed: Parsed, row: Row, scale: float) -> None:
    frames = _count(row["frames"]) * scale
    parsed.seen_frames = max(parsed.seen_frames, frames)
    parsed.wall_s = max(parsed.wall_s, finite(row["wall_s"]))
    parsed.skipped += int(finite(row.get("skipped", 0)))
    if row.get("secondary"):
        parsed.has_secondary = True
        return
    if row["return"] is None:
        return
    segment = row.get("segment") if row.get("switch") else None
    success = row.get("success_rate")
    parsed.evaluations.append(
        EvalPoint(
            task=clean_name(row["task"]),
            frames=frames,
            value=finite(row["return"]),
            episodes=max(1.0, finite(row["episodes"])),
            segment=None if segment is None else int(finite(segment)),
            success=None if success is None else finite(success),
        )
    )


def _take_train(parsed: Parsed, row: Row, scale: float) -> None:
    parsed.seen_frames = max(parsed.seen_frames, _count(row["frames"]) * scale)
    parsed.wall_s = max(parsed.wall_s, finite(row["wall_s"]))
    if row["fps"]:
        parsed.speeds.append(finite(row["fps"]))
    nbytes = row["replay"].get("bytes")
    if nbytes is not None:
        parsed.memory_nbytes = finite(nbytes)


def _take_segment(row: Row, segments: dict[int, Row], first_ends: dict[int, float]) -> None:
    """Keep the later row of an index; the first one with an end gives the plan's end."""
    index = int(finite(row.get("index", len(segments))))
    for bound in ("start_frames", "end_frames"):
        if row[bound] is not None:
            _count(row[bound])
    for weights in (row.get("weights"), row.get("end_weights")):
        if weights is not None and not sum(finite(weight) for weight in weights) > 0:
            raise ValueError("weights without a sum")
    if row["end_frames"] is not None:
        first_ends.setdefault(index, finite(row["end_frames"]))
    _count(row.get("extra_frames", 0))
    segments[index] = row


def _span(index: int, row: Row, scale: float) -> Span:
    """Build a span; a bound that is not known yet is infinite."""
    start, end = (math.inf if row[key] is None else float(row[key]) * scale for key in ("start_frames", "end_frames"))
    weights, end_weights = (tuple(map(float, row.get(key) or ())) for key in ("weights", "end_weights"))
    extra = float(row.get("extra_frames", 0)) * scale
    return Span(tuple(clean_name(task) for task in row["tasks"]), start, end, index, weights, end_weights, extra)


def _curve(points: np.ndarray) -> Curve:
    """Build a curve; several evaluations of the same weights count as one, their mean over episodes."""
    frames, index = np.unique(points[:, 0], return_inverse=True)
    sums = np.bincount(index, weights=points[:, 1] * points[:, 2])
    return Curve(frames, sums / np.bincount(index, weights=points[:, 2]))
