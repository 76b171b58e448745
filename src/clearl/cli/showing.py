"""The end of `clearl report` and `clearl demo`: one table, one sentence, and the path of the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def show_report(runs: Sequence[Path], out: Path, *, title: str | None = None, paper: bool = False) -> None:
    """Write the report of `runs` into `out`, and print what it says; with `paper`, beside the paper's numbers."""
    from rich.console import Console

    from clearl.report import headline, make_report, summary_table

    summary = make_report(runs, out, title=title, paper=paper)
    console = Console()
    console.print(summary_table(summary))
    console.print(headline(summary), markup=False, highlight=False)
    print(f"report: {out / 'index.html'}")
