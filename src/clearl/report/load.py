"""From directories to runs: what each run evaluated, when it trained on what, and which run it repeats."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from clearl.errors import ClearlError, ReportError
from clearl.records.reader import Scan, scan_rows
from clearl.records.run_dir import CONFIG_FILE, META_FILE, read_meta
from clearl.records.schema import METRICS_FILE, Row


@dataclass(frozen=True)
class Curve:
    """The evaluated return of one task over training; frames rise strictly."""

    frames: np.ndarray
    returns: np.ndarray


@dataclass(frozen=True)
class Span:
    """A stretch of training on some tasks."""

    tasks: tuple[str, ...]
    start: float
    end: float


@dataclass(frozen=True)
class Run:
    """One run (of a `separate` run: all its parts), with frames as the x-axis counts them: summed over tasks."""

    path: Path
    meta: dict[str, Any]
    config: dict[str, Any]
    curves: dict[str, Curve]
    spans: tuple[Span, ...]
    planned_frames: float | None
    """Frames of the whole plan; None where it ends by episodes or nothing says it."""
    seen_frames: float
    """How far the rows go."""
    notes: tuple[str, ...] = ()
    fps: float | None = None
    wall_s: float = 0.0

    @property
    def seed(self) -> int:
        return int(self.meta.get("seed", self.config.get("seed", 0)))

    @property
    def protocol(self) -> str:
        return str(self.meta.get("protocol") or self.config.get("protocol") or "sequential")

    @property
    def probe_position(self) -> int | None:
        position = self.meta.get("probe_position")
        return None if position is None or self.protocol != "probe" else int(position)

    @property
    def probe_task(self) -> str | None:
        return self.meta.get("probe_task") or self.config.get("probe_task")

    @property
    def is_finished(self) -> bool:
        if "status" in self.meta:
            return self.meta["status"] == "finished"
        return self.planned_frames is None or self.seen_frames >= 0.9 * self.planned_frames

    @property
    def end_frames(self) -> float:
        """Where the run's measures are read: its planned end, or as far as it got."""
        if self.planned_frames is None:
            return self.seen_frames
        return self.planned_frames if self.is_finished else min(self.seen_frames, self.planned_frames)

    def visits(self, task: str) -> list[tuple[float, float]]:
        """The stretches (start, end) in which `task` was trained, as far as the run got; neighbours joined."""
        stretches: list[tuple[float, float]] = []
        for span in self.spans:
            start, end = span.start, min(span.end, self.end_frames)
            if task not in span.tasks or end <= start:
                continue
            if stretches and stretches[-1][1] >= start:
                start = stretches.pop()[0]
            stretches.append((start, end))
        return stretches

    def is_whole_absence(self, left: float, back: float) -> bool:
        """Whether a whole segment lies between the two frames: less than that is a round that overshot its bound."""
        return any(left <= span.start and min(span.end, self.planned_frames or span.end) <= back for span in self.spans)


def load_runs(dirs: Sequence[Path]) -> list[Run]:
    """Every run at or below the directories; `ReportError` if there is none."""
    paths = list(dict.fromkeys(path.resolve() for given in dirs for path in _run_paths(Path(given))))
    if not paths:
        raise ReportError(f"no run found in {', '.join(map(str, dirs))}: a run holds {METRICS_FILE} and {META_FILE}")
    return merge_parts([load_run(path) for path in paths])


def load_run(path: Path) -> Run:
    """The run in one directory, whatever state it was left in."""
    notes: list[str] = []
    meta = _read_meta(path, notes)
    scan = scan_rows(path / METRICS_FILE, thin="train")
    if scan.damaged_lines:
        notes.append(f"{len(scan.damaged_lines)} damaged rows were left out")
    scale = float(meta.get("frames_scale") or 1)
    spans = _spans(scan.rows, meta, scale)
    planned = _planned_frames(scan.rows, spans, scale)
    lasts = [row for row in scan.rows if row["kind"] in ("eval", "train")]
    seen = max((float(row["frames"]) for row in lasts), default=0.0) * scale
    speeds = [row["fps"] for row in scan.rows if row["kind"] == "train" and row["fps"]]
    return Run(
        path=path,
        meta=meta,
        config=_read_config(path, notes),
        curves=_curves(scan, scale, end=np.inf if planned is None else planned),
        spans=tuple(span for span in spans if span.start < np.inf),
        planned_frames=planned,
        seen_frames=seen,
        notes=tuple(notes),
        fps=float(np.median(speeds)) if speeds else None,
        wall_s=max((float(row["wall_s"]) for row in lasts), default=0.0),
    )


def merge_parts(runs: Iterable[Run]) -> list[Run]:
    """Put the parts of each `separate` run together: of each part, the tasks that it trained."""
    merged: list[Run] = []
    parts: dict[tuple[Path, int, str | None], list[Run]] = {}
    for run in runs:
        if run.protocol == "separate" and float(run.meta.get("frames_scale") or 1) > 1:
            parts.setdefault((run.path.parent, run.seed, run.meta.get("arm")), []).append(run)
        else:
            merged.append(run)
    return merged + [_merge(list(group)) for group in parts.values()]


def _merge(parts: list[Run]) -> Run:
    parent = parts[0].path.parent
    wanted = int(parts[0].meta["frames_scale"])
    notes = [note for part in parts for note in part.notes]
    if len(parts) < wanted:
        notes.append(f"{len(parts)} of {wanted} tasks were run")
    curves = {task: part.curves[task] for part in parts for task in _trained(part) if task in part.curves}
    finished = len(parts) == wanted and all(part.is_finished for part in parts)
    planned = [part.planned_frames for part in parts]
    return replace(
        parts[0],
        path=parent,
        meta={**parts[0].meta, "status": "finished" if finished else "interrupted"},
        curves=curves,
        spans=tuple(span for part in parts for span in part.spans),
        planned_frames=None if None in planned else max(frames or 0.0 for frames in planned),
        seen_frames=min((part.seen_frames for part in parts if part.curves), default=0.0),
        notes=tuple(notes),
        wall_s=sum(part.wall_s for part in parts),
    )


def _trained(run: Run) -> set[str]:
    return {task for span in run.spans for task in span.tasks}


def _run_paths(top: Path) -> Iterator[Path]:
    if not top.is_dir():
        raise ReportError(f"{top} is not a directory")
    for directory, names, files in os.walk(top):
        if METRICS_FILE in files or (META_FILE in files and CONFIG_FILE in files and not _has_parts(directory, names)):
            names.clear()  # nothing below a run is another run
            yield Path(directory)
        names.sort()


def _has_parts(directory: str, names: Iterable[str]) -> bool:
    return any((Path(directory) / name / META_FILE).exists() for name in names)


def _read_meta(path: Path, notes: list[str]) -> dict[str, Any]:
    if not (path / META_FILE).exists():
        notes.append(f"there is no {META_FILE}")
        return {}
    try:
        return read_meta(path)
    except ClearlError as error:
        raise ReportError(f"cannot report this run: {error}") from None


def _read_config(path: Path, notes: list[str]) -> dict[str, Any]:
    if not (path / CONFIG_FILE).exists():
        notes.append(f"there is no {CONFIG_FILE}")
        return {}
    try:
        config = yaml.safe_load((path / CONFIG_FILE).read_text())
    except (yaml.YAMLError, UnicodeDecodeError):
        notes.append(f"{CONFIG_FILE} cannot be read")
        return {}
    return config if isinstance(config, dict) else {}


def _spans(rows: Iterable[Row], meta: dict[str, Any], scale: float) -> list[Span]:
    """The segments in order; a bound that nobody knows yet is infinite."""
    segments: dict[int, Row] = {}
    for row in rows:
        if row["kind"] == "segment":
            segments[int(row.get("index", len(segments)))] = row
    spans = [
        Span(tuple(row["tasks"]), _bound(row["start_frames"], scale), _bound(row["end_frames"], scale))
        for _, row in sorted(segments.items())
    ]
    return spans or _planned_spans(meta, scale)


def _planned_frames(rows: Iterable[Row], spans: Sequence[Span], scale: float) -> float | None:
    """Where the plan ends: what the last segment's first row with an end says; later rows have the true end."""
    ends: dict[int, float] = {}
    for row in rows:
        if row["kind"] == "segment" and row["end_frames"] is not None:
            ends.setdefault(int(row.get("index", len(ends))), float(row["end_frames"]) * scale)
    if not spans or not np.isfinite([span.end for span in spans]).all():
        return None
    return ends[max(ends)] if ends else max(span.end for span in spans)


def _planned_spans(meta: dict[str, Any], scale: float) -> list[Span]:
    """The same from the plan in the meta data, for a run that has not recorded anything."""
    spans: list[Span] = []
    start = 0.0
    for segment in (meta.get("plan") or {}).get("segments", ()):
        end = start + _bound(segment.get("frames"), scale)
        spans.append(Span(tuple(segment["tasks"]), start, end))
        start = end
    return spans


def _bound(frames: float | None, scale: float) -> float:
    return np.inf if frames is None else float(frames) * scale


def _curves(scan: Scan, scale: float, *, end: float) -> dict[str, Curve]:
    """The evaluations; the last round may overshoot the plan, and what it measured is the score at the plan's end."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in scan.rows:
        if row["kind"] == "eval" and row["return"] is not None:
            points.setdefault(row["task"], []).append((min(float(row["frames"]) * scale, end), float(row["return"])))
    return {task: _curve(np.array(values)) for task, values in points.items()}


def _curve(points: np.ndarray) -> Curve:
    """Several evaluations of the same weights count as one: their mean."""
    frames, index = np.unique(points[:, 0], return_inverse=True)
    sums = np.bincount(index, weights=points[:, 1])
    return Curve(frames, sums / np.bincount(index))


@dataclass(frozen=True)
class Arm:
    """Runs that differ only in their seed."""

    name: str
    runs: tuple[Run, ...] = field(default_factory=tuple)

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def tasks(self) -> list[str]:
        """In the order of their first visit."""
        order = dict.fromkeys(task for run in self.runs for span in run.spans for task in span.tasks)
        return list(dict.fromkeys([*order, *(task for run in self.runs for task in run.curves)]))

    @property
    def needs_boundaries(self) -> bool:
        return any(bool(run.meta.get("needs_boundaries")) for run in self.runs)

    @property
    def probe_position(self) -> int | None:
        return self.runs[0].probe_position
