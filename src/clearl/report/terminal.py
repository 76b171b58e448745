"""The report's main table for a terminal, readable from 80 columns on."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from clearl.report.arms import label
from clearl.report.formatting import percent, with_deviation
from clearl.report.summary import Summary


def summary_table(summary: Summary) -> Table:
    """Return a block for each arm with a row for each task: cumulative and final score, forgetting, the share kept."""
    table = Table(title=Text(summary.title), title_justify="left", title_style="bold", header_style="bold",
                  box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))  # fmt: skip
    table.add_column("arm and task", overflow="fold")
    for name in ("cumulative", "final", "forgetting", "kept"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, arm in summary.arms.items():
        tasks = [task for task in summary.tasks if task in arm.tasks]
        table.add_row(Text(label(name), style="bold"), end_section=not tasks)
        for task in tasks:
            stats, kept = arm.tasks[task], arm.stat(task, "kept")
            cells = [with_deviation(stats.get(key)) for key in ("cumulative", "final", "forgetting")]
            share = percent(kept.mean if kept else None)
            table.add_row(Text(f"  {task}"), *map(Text, [*cells, share]), end_section=task == tasks[-1])
    return table
