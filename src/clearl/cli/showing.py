"""The end of `clearl report` and `clearl demo`: one table, one sentence, and the path of the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

NOTES_SHOWN = 5


def show_report(runs: Sequence[Path], out: Path, *, title: str | None = None, paper: bool = False) -> None:
    """Write the report of `runs` into `out`, and print what it says; with `paper`, beside the paper's numbers."""
    from rich.console import Console

    from clearl.report import headline, make_report, summary_table

    summary = make_report(runs, out, title=title, paper=paper)
    console = Console()
    console.print(summary_table(summary))
    console.print(headline(summary), markup=False, highlight=False)
    for note in summary.notes[:NOTES_SHOWN]:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=not console.is_terminal)
    if len(summary.notes) > NOTES_SHOWN:
        print(f"note: {len(summary.notes) - NOTES_SHOWN} more on the page")
    print(f"report: {out / 'index.html'}")
