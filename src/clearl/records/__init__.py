"""The run directory: written by training, read by everything that shows results."""

from __future__ import annotations

from clearl.records.reader import Followed, Position, Scan, follow, read_rows, scan_rows
from clearl.records.run_dir import RunDir, holds_run, read_meta, refuse_foreign
from clearl.records.schema import (
    Row,
    check_row,
    eval_row,
    fault_row,
    resume_row,
    segment_row,
    summary_row,
    train_row,
)
from clearl.records.writer import MetricsWriter

__all__ = [
    "Followed",
    "MetricsWriter",
    "Position",
    "Row",
    "RunDir",
    "Scan",
    "check_row",
    "eval_row",
    "fault_row",
    "follow",
    "holds_run",
    "read_meta",
    "read_rows",
    "refuse_foreign",
    "resume_row",
    "scan_rows",
    "segment_row",
    "summary_row",
    "train_row",
]
