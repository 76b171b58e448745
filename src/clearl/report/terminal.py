"""The report's main table for a terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from clearl.report.arms import label
from clearl.report.formatting import percent, with_deviation
from clearl.report.summary import Summary


def summary_table(summary: Summary) -> Table:
    """Arm x task: cumulative and final score, forgetting, and the share kept while away."""
    table = Table(title=summary.title, title_justify="left", title_style="bold", header_style="bold")
    table.add_column("arm")
    table.add_column("task")
    for name in ("cumulative", "final", "forgetting", "kept"):
        table.add_column(name, justify="right")
    for name, arm in summary.arms.items():
        tasks = [task for task in summary.tasks if task in arm.tasks]
        for index, task in enumerate(tasks):
            stats, kept = arm.tasks[task], arm.stat(task, "kept")
            cells = [with_deviation(stats.get(key)) for key in ("cumulative", "final", "forgetting")]
            last = index == len(tasks) - 1
            first = Text(label(name), style="bold") if index == 0 else ""
            table.add_row(first, task, *cells, percent(kept.mean if kept else None), end_section=last)
    return table
