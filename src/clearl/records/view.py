"""The state of a run as of its rows so far, as the terminal shows it; draws nothing itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from clearl.records.schema import Row

HISTORY = 24
"""The number of evaluations that a view keeps for each task."""

_MOST_SEGMENTS = 200_000  # more than a plan with an end may have


@dataclass
class RunView:
    """The state of a run after the rows that `update` received."""

    tasks: tuple[str, ...]
    total_frames: int | None
    forever: bool = False
    """The plan repeats without an end."""
    frames: int = 0
    fps: float | None = None
    returns: dict[str, deque[float]] = field(default_factory=dict)
    """The last evaluations of each task."""
    training: tuple[str, ...] = ()
    training_returns: dict[str, float] = field(default_factory=dict)
    """Mean return of each task's training episodes, from the last row in which some ended."""
    shares: dict[str, float] = field(default_factory=dict)
    """The share of the slots that play each task; empty where one task has them all."""
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    """Seconds that each process spent on each part of its work between the last two rows."""
    health: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The state of each worker and evaluator."""
    diagnostics: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """The last diagnosis of an update; see `clearl.learning.diagnostics`."""
    faults: int = 0
    resumed_frames: int | None = None
    """The frame at which the run last resumed from a checkpoint."""
    skipped_evaluations: int = 0
    _segments: dict[int, Row] = field(default_factory=dict)
    _past: int = 0
    """The number of finished segments that were dropped."""

    def update(self, row: Row) -> None:
        """Take in one metrics row."""
        kind = row["kind"]
        if kind == "segment":
            self._entered(row)
            if len(self._segments) > _MOST_SEGMENTS:  # a run without an end adds more and more
                del self._segments[min(self._segments)]
                self._past += 1
        elif kind == "eval" and not row.get("secondary"):
            self._evaluated(row)
        elif kind == "fault":
            self.faults += 1
        elif kind == "resume":
            # Training went back to the checkpoint: later rows are written again.
            self.frames = self.resumed_frames = int(row["frames"])
            self.training = next((tuple(row["tasks"]) for row in self._begun()[::-1]), self.training)
        elif kind == "train":
            self._trained(row)
        elif kind == "summary":
            self.skipped_evaluations = row.get("evaluations", {}).get("skipped", 0)

    @property
    def segment(self) -> tuple[int, int | None] | None:
        """The number of the segment in training (from 1), and the count of all; None for a plan without an end."""
        if not self._segments:
            return None
        count = None if self.forever else self._past + len(self._segments)
        return self._past + max(1, len(self._begun())), count

    def _begun(self) -> list[Row]:
        """Return the segments that began at or before the present frame, in their order."""
        known = [self._segments[index] for index in sorted(self._segments)]
        return [row for row in known if row["start_frames"] is not None and row["start_frames"] <= self.frames]

    @property
    def seconds_left(self) -> float | None:
        """The seconds left at the present speed; None while that is unknown."""
        if self.total_frames is None or not self.fps:
            return None
        return max(0, self.total_frames - self.frames) / self.fps

    @property
    def all_tasks(self) -> tuple[str, ...]:
        return (*self.tasks, *(task for task in self.returns if task not in self.tasks))

    @property
    def health_line(self) -> str:
        """The workers in a few words: "3 of 4 workers running, 2 restarts"; empty where there are none."""
        workers = [state for name, state in self.health.items() if name.startswith("worker")]
        if not workers:
            return ""
        running = sum(state.get("state") == "running" for state in workers)
        restarts = sum(int(state.get("restarts", 0)) for state in self.health.values())
        count = f"{len(workers)} worker{'s' if len(workers) != 1 else ''}"
        words = count if running == len(workers) else f"{running} of {count} running"
        return words if not restarts else f"{words}, {restarts} restart{'s' if restarts != 1 else ''}"

    def _entered(self, row: Row) -> None:
        """Take in a segment: the plan's segments come before training, and each again when it begins and when it ends.

        For a plan without an end, only segments that have begun are recorded.
        """
        index, start = row.get("index", len(self._segments)), row["start_frames"]
        has_begun = index in self._segments or self.total_frames is None or not self._segments
        self._segments[index] = row
        if has_begun and start is not None:
            self.frames, self.training = max(self.frames, int(start)), tuple(row["tasks"])

    def _evaluated(self, row: Row) -> None:
        if row["return"] is not None:
            self.frames = max(self.frames, int(row["frames"]))
            self.returns.setdefault(row["task"], deque(maxlen=HISTORY)).append(float(row["return"]))

    def _trained(self, row: Row) -> None:
        self.frames, self.training = max(self.frames, int(row["frames"])), tuple(row["tasks"])
        if row["fps"]:
            # Smoothed, so that the time left does not jump with every row.
            self.fps = row["fps"] if self.fps is None else 0.8 * self.fps + 0.2 * row["fps"]
        self.training_returns |= {task: ended["mean_return"] for task, ended in row.get("episodes", {}).items()}
        self.shares = row.get("shares", {})
        self.seconds = row.get("seconds", self.seconds)
        self.health = row.get("health", self.health)
        self.diagnostics = row.get("diagnostics", self.diagnostics)
