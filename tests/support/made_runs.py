"""Runs for tests of the report: rows added to a run directory, and runs made of points without any file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clearl.records.schema import encode, train_row
from clearl.report.run import Curve, Run, Span

VISITS = [("a", 0, 100), ("b", 100, 200), ("a", 200, 300), ("b", 300, 400)]
POINTS = {
    "a": [(0, 0.0), (100, 8.0), (150, 3.0), (200, 2.0), (250, 9.0), (300, 10.0), (400, 6.0)],
    "b": [(0, 1.0), (100, 1.0), (200, 5.0), (300, 4.0), (400, 7.0)],
}
"""Evaluations (frames, return) of two tasks over two visits to each."""


def run_of(
    path: Path,
    points: Mapping[str, Sequence[tuple[float, float]]],
    visits: Sequence[tuple[str, int, int]],
    *,
    status: str = "finished",
    switches: Any = None,
    **meta: Any,
) -> Run:
    """Make a run with these evaluations, visits (task, start, end) and evaluations at switches."""
    curves = {task: Curve(*np.array(values, dtype=float).T) for task, values in points.items()}
    spans = tuple(Span((task,), start, end, index) for index, (task, start, end) in enumerate(visits))
    planned = max(span.end for span in spans)
    seen = max((curve.frames[-1] for curve in curves.values()), default=0.0)
    return Run(path, {"status": status, **meta}, {}, curves, spans, planned, seen, switches=switches or {})


def add_train_row(path: Path, frames: int, **fields: Any) -> None:
    """Append a row of training metrics to the run in `path`, empty but for `fields`."""
    plain: dict[str, Any] = {"updates": 1, "fps": 1.0, "loss": {}, "lag_updates": 0.0, "replay": {}, "wall_s": 0.0}
    row = train_row(tasks=["a"], frames=frames, **{**plain, **fields})
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(encode(row))
