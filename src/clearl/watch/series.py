"""Turn the rows of one run into curves of bounded length for the page, however many rows there are."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from clearl.records.schema import Row

MOST_POINTS = 2_000
"""Points of one curve that are kept and sent; more than a screen has columns."""
_MOST_CURVES = 200
_MOST_EVENTS = 200
_MOST_SEGMENTS, _MOST_SWITCHES = 400, 100
"""The most that is sent of a long plan: the segments around the current one, the newest columns of the matrix."""


class BucketedCurves:
    """Several values over frames, kept as means of at most `most` buckets of equally many rows."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._rows_per_bucket = 1
        self._in_last = 0
        self._frames: list[float] = []
        self._values: dict[str, list[float | None]] = {}
        self._last_counts: dict[str, int] = {}

    def add(self, frames: float, values: dict[str, float | None]) -> None:
        """Take in one row; a value that is not finite counts as missing."""
        if self._in_last == 0:
            self._frames.append(frames)
            for column in self._values.values():
                column.append(None)
            self._last_counts = {}
        self._frames[-1] = frames
        for name, value in values.items():
            if value is not None and math.isfinite(value):
                self._mean(name, float(value))
        self._in_last = (self._in_last + 1) % self._rows_per_bucket
        if self._in_last == 0 and len(self._frames) >= self._most:
            self._halve()

    def _mean(self, name: str, value: float) -> None:
        if name not in self._values and len(self._values) >= _MOST_CURVES:
            return
        column = self._values.setdefault(name, [None] * len(self._frames))
        count = self._last_counts.get(name, 0)
        before = column[-1]
        column[-1] = value if before is None else before + (value - before) / (count + 1)
        self._last_counts[name] = count + 1

    def _halve(self) -> None:
        """Merge neighbours: half as many buckets, twice as wide."""
        self._frames = self._frames[1::2]
        self._values = {
            name: [_mean_of(pair) for pair in zip(column[::2], column[1::2], strict=False)]
            for name, column in self._values.items()
        }
        self._frames = self._frames[: min(map(len, self._values.values()), default=len(self._frames))]
        self._rows_per_bucket *= 2

    def to_json(self) -> dict[str, Any]:
        """`{"frames": [...], "values": {name: [...]}}`, all of one length; copies, since rows may come meanwhile."""
        return {"frames": [*self._frames], "values": {name: [*column] for name, column in self._values.items()}}


def _mean_of(pair: tuple[float | None, float | None]) -> float | None:
    known = [value for value in pair if value is not None]
    return sum(known) / len(known) if known else None


@dataclass
class RunSeries:
    """The curves and facts that the page shows of one run; `update` takes its rows in order."""

    frames: int = 0
    updates: int = 0
    wall_s: float = 0.0
    training: list[str] = field(default_factory=list)
    rows: int = 0
    _evaluations: dict[str, BucketedCurves] = field(default_factory=dict)
    _switches: dict[int, dict[str, float | None]] = field(default_factory=dict)
    _train: BucketedCurves = field(default_factory=BucketedCurves)
    _segments: dict[int, Row] = field(default_factory=dict)
    _events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))
    _last_train: Row = field(default_factory=dict)
    _by_task: dict[str, Any] = field(default_factory=dict)
    _by_task_frames: int | None = None
    _counts: dict[str, int] = field(default_factory=lambda: {"fault": 0, "restart": 0, "resume": 0})

    def update(self, row: Row) -> None:
        """Take in one row of any kind; kinds that are not known are left to other readers."""
        self.rows += 1
        self.wall_s = max(self.wall_s, _number(row.get("wall_s")) or 0.0)
        kind = row.get("kind")
        if kind == "eval":
            self._evaluated(row)
        elif kind == "train":
            self._trained(row)
        elif kind == "segment":
            index = _number(row.get("index"))
            self._segments[len(self._segments) if index is None else int(index)] = row
        elif kind in self._counts:
            self._counts[kind] += 1
            self._events.append({"kind": kind, **{key: row.get(key) for key in ("frames", "worker", "problem")}})

    def _evaluated(self, row: Row) -> None:
        task, frames, value = str(row["task"]), _number(row["frames"]) or 0.0, _number(row["return"])
        self.frames = max(self.frames, int(frames))
        if row.get("column") == "active":  # the page follows the column that is kept
            return
        self._evaluations.setdefault(task, BucketedCurves()).add(
            frames, {"return": value, "success_rate": _number(row.get("success_rate"))}
        )
        if row.get("switch") and isinstance(row.get("segment"), int):
            self._switches.setdefault(row["segment"], {})[task] = value

    def _trained(self, row: Row) -> None:
        frames = int(_number(row["frames"]) or 0)
        self.frames, self.updates = max(self.frames, frames), int(row["updates"])
        self.training = [str(task) for task in row["tasks"]]
        self._last_train = row
        if by_task := _mapping(_mapping(row.get("replay")).get("by_task")):  # not in every row
            self._by_task, self._by_task_frames = by_task, frames
        self._train.add(frames, dict(_plotted(row)))

    def to_json(self) -> dict[str, Any]:
        """Return what the page draws."""
        last = self._last_train
        return {
            "frames": self.frames, "updates": self.updates, "wall_s": self.wall_s, "training": self.training,
            "rows": self.rows, "fps": _number(last.get("fps")), "lag_updates": _number(last.get("lag_updates")),
            "segments": [_segment(index, row) for index, row in self._present_segments()],
            "planned_segments": len(self._segments),
            "evaluations": {task: curves.to_json() for task, curves in self._evaluations.items()},
            "switches": [
                {"segment": index, "returns": {**self._switches[index]}}
                for index in sorted(self._switches)[-_MOST_SWITCHES:]
            ],
            "train": self._train.to_json(),
            "shares": _mapping(last.get("shares")),
            "replay": {"by_task": self._by_task, "by_task_frames": self._by_task_frames}
            | _mapping(last.get("replay")),
            "health": _mapping(last.get("health")), "seconds": _mapping(last.get("seconds")),
            "events": [*self._events], "counts": {**self._counts},
        }  # fmt: skip

    def _present_segments(self) -> list[tuple[int, Row]]:
        """Return the segments by index; of very many, those around the present one."""
        ordered = sorted(self._segments.items())
        begun = sum((_number(row.get("start_frames")) or 0) <= self.frames for _, row in ordered)
        first = max(0, min(begun - _MOST_SEGMENTS // 2, len(ordered) - _MOST_SEGMENTS))
        return ordered[first : first + _MOST_SEGMENTS]


def _segment(index: int, row: Row) -> dict[str, Any]:
    keys = ("tasks", "weights", "end_weights", "start_frames", "end_frames")
    return {"index": index, **{key: row.get(key) for key in keys}}


def _plotted(row: Row) -> list[tuple[str, float | None]]:
    """Return the curves that one training row adds to, under the names of the page's charts."""
    plain = [(name, _number(row.get(name))) for name in ("fps", "lag_updates", "grad_norm", "learning_rate")]
    losses = [(f"loss/{name}", _number(value)) for name, value in _mapping(row.get("loss")).items()]
    halves = [
        (f"{name}/{half}", _number(value))
        for half, values in _mapping(row.get("diagnostics")).items()
        for name, value in _mapping(values).items()
    ]
    ended = [
        (f"episodes/{task}", _number(_mapping(values).get("mean_return")))
        for task, values in _mapping(row.get("episodes")).items()
    ]
    return [*plain, *losses, *halves, *ended, ("held", _number(_mapping(row.get("replay")).get("held")))]


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
