"""A run as the report sees it: evaluated curves, the segments of its plan, and evaluations at its switches."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clearl.records.names import clean_name


@dataclass(frozen=True)
class Curve:
    """A value of one task over training, such as its evaluated return; frames rise strictly."""

    frames: np.ndarray
    returns: np.ndarray

    def at(self, frames: np.ndarray) -> np.ndarray:
        """Return the straight lines between the evaluations; constant before the first and after the last."""
        return np.interp(frames, self.frames, self.returns)


@dataclass(frozen=True)
class Span:
    """A segment of the plan: a stretch of training on some tasks."""

    tasks: tuple[str, ...]
    start: float
    end: float
    index: int = 0
    weights: tuple[float, ...] = ()
    """The share of each task in the frames, at its start; empty means equal shares."""
    end_weights: tuple[float, ...] = ()
    """The same at its end, where the mixture moves."""
    extra: float = 0.0
    """Frames at its end on top of the visit's own, such as a compress phase's."""

    def share(self, task: str) -> float:
        """Return the task's mean share of the segment's frames."""
        if task not in self.tasks:
            return 0.0
        shares = [weights for weights in (self.weights, self.end_weights) if len(weights) == len(self.tasks)]
        if not shares:
            return 1 / len(self.tasks)
        place = self.tasks.index(task)
        return float(np.mean([weights[place] / sum(weights) for weights in shares]))


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
    """The last frame that a row tells of."""
    notes: tuple[str, ...] = ()
    fps: float | None = None
    wall_s: float = 0.0
    switches: dict[str, dict[int, float]] = field(default_factory=dict)
    """Task to segment to the return evaluated exactly at the end of that segment; older runs have none."""
    success: dict[str, Curve] = field(default_factory=dict)
    """The share of evaluation episodes that reached the task's goal, where the environment says it."""
    has_two_columns: bool = False
    """True if the task in training was evaluated with a second network, which is not plotted."""
    skipped: int = 0
    """Evaluations that were due and left out, because the evaluator lagged."""
    memory_nbytes: float | None = None
    """Bytes of replay, networks and what the method keeps beside them; of replay alone where the run did not end."""
    common_frames: float | None = None
    """Measures are read here where the runs of a report are of different lengths; curves are drawn to their end."""
    compress_frames: float = 0.0
    """Frames of compress phases that came on top of the visits, left out of every axis of this run."""

    @property
    def seed(self) -> int:
        return int(self.meta.get("seed", self.config.get("seed", 0)))

    @property
    def protocol(self) -> str:
        return str(self.meta.get("protocol") or self.config.get("protocol") or "sequential")

    @property
    def frames_scale(self) -> float:
        """Frames of the common axis for each frame of this run: the number of tasks where each has its own network."""
        return float(self.meta.get("frames_scale") or 1)

    @property
    def probe_position(self) -> int | None:
        position = self.meta.get("probe_position")
        return None if position is None or self.protocol != "probe" else int(position)

    @property
    def probe_task(self) -> str | None:
        task = self.meta.get("probe_task") or self.config.get("probe_task")
        return None if task is None else clean_name(task)

    @property
    def is_finished(self) -> bool:
        if "status" in self.meta:
            return self.meta["status"] == "finished"
        return self.planned_frames is None or self.seen_frames >= 0.9 * self.planned_frames

    @property
    def drawn_frames(self) -> float:
        """The frame where its curves end: the end of the plan, or as far as it got."""
        if self.planned_frames is None:
            return self.seen_frames
        return self.planned_frames if self.is_finished else min(self.seen_frames, self.planned_frames)

    @property
    def end_frames(self) -> float:
        """The frame at which its measures are read."""
        return self.drawn_frames if self.common_frames is None else min(self.drawn_frames, self.common_frames)

    def visits(self, task: str, *, until: float | None = None) -> list[tuple[float, float]]:
        """Return the stretches (start, end) in which `task` was trained, as far as the run got; neighbours joined."""
        until = self.end_frames if until is None else until
        stretches: list[tuple[float, float]] = []
        for span in self.spans:
            start, end = span.start, min(span.end, until)
            if task not in span.tasks or end <= start:
                continue
            if stretches and stretches[-1][1] >= start:
                start = stretches.pop()[0]
            stretches.append((start, end))
        return stretches

    def is_whole_absence(self, left: float, back: float) -> bool:
        """Return whether a whole segment lies between the two frames.

        Less than that is a round that overshot its bound.
        """
        bounds = self._bounds
        first = bisect_left(bounds, (left, left))
        return any(end <= back for _, end in bounds[first : first + 1])

    def segment_ending_at(self, frame: float) -> int | None:
        """Return the segment that ends at this frame, the last one at the end of the plan."""
        return self._segment_by_end.get(frame)

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """A cache for measures of this run: a plan may have a hundred thousand switches."""
        return {}

    @cached_property
    def _bounds(self) -> list[tuple[float, float]]:
        return sorted((span.start, min(span.end, self.planned_frames or span.end)) for span in self.spans)

    @cached_property
    def _segment_by_end(self) -> dict[float, int]:
        return {min(span.end, self.planned_frames or span.end): span.index for span in self.spans}


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
        """The tasks in the order of their first visit."""
        order = dict.fromkeys(task for run in self.runs for span in run.spans for task in span.tasks)
        return list(dict.fromkeys([*order, *(task for run in self.runs for task in run.curves)]))

    @property
    def needs_boundaries(self) -> bool:
        return any(bool(run.meta.get("needs_boundaries")) for run in self.runs)

    @property
    def probe_position(self) -> int | None:
        return self.runs[0].probe_position
