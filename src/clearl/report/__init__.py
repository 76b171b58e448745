"""From run directories to a report: numbers, figures, tables, findings and a page. Never imports torch."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearl.errors import ReportError
from clearl.report.arms import group_arms
from clearl.report.headline import headline
from clearl.report.leaderboard import Entry, entries
from clearl.report.lengths import to_common_length
from clearl.report.load import load_runs
from clearl.report.page_css import MARK
from clearl.report.summary import Summary, summarise
from clearl.report.tables import all_tables, write_tables
from clearl.report.terminal import summary_table

__all__ = ["Entry", "Summary", "headline", "make_leaderboard", "make_report", "summarise_runs", "summary_table"]

PAGE = "index.html"
_DIRS_SHOWN = 4


def summarise_runs(dirs: Sequence[Path], *, title: str | None = None) -> Summary:
    """Return the numbers and findings of all runs at or below `dirs`, without writing anything."""
    runs, notes = to_common_length(load_runs(dirs))
    arms = group_arms(runs)
    return summarise(arms, title=title or "Continual learning on " + ", ".join(_suites(arms)), notes=notes)


def make_report(dirs: Sequence[Path], out: Path, *, title: str | None = None, paper: bool = False) -> Summary:
    """Report all runs at or below `dirs` into the directory `out`; with `paper`, beside the paper's own numbers.

    Writes index.html, summary.json, findings.json, figures/*.svg and *.png, tables/*.md, *.csv and *.tex.
    """
    from clearl.report.gallery import draw_all  # Matplotlib takes a while to import
    from clearl.report.page import write_page

    summary = summarise_runs(dirs, title=title)
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise ReportError(f"{out} is a file; --out needs a directory")
    _refuse_foreign_page(out / PAGE)
    out.mkdir(parents=True, exist_ok=True)
    _write_json(out / "summary.json", summary.to_json())
    _write_json(out / "findings.json", [finding.to_json() for finding in summary.findings])
    tables = all_tables(summary, paper=paper)
    write_tables(tables, out / "tables")
    figures = draw_all(summary, out / "figures")
    write_page(summary, tables, figures, out / PAGE, command=_command(dirs, out))
    return summary


def make_leaderboard(dirs: Sequence[Path], out: Path, *, command: str) -> list[Entry]:
    """Rank the methods of all runs at or below `dirs` on each suite; writes index.html, leaderboard.md and .json."""
    from clearl.report.leaderboard_page import write_leaderboard

    out = Path(out)
    if out.exists() and not out.is_dir():
        raise ReportError(f"{out} is a file; --out needs a directory")
    _refuse_foreign_page(out / PAGE)
    found, _ = entries(dirs)
    write_leaderboard(found, out, command=command)
    return found


def _refuse_foreign_page(path: Path) -> None:
    """Leave a page alone that is none of ours."""
    if path.exists() and MARK not in path.read_bytes()[:20_000]:
        raise ReportError(f"{path} is there and no report of clearl; give another --out")


def _command(dirs: Sequence[Path], out: Path) -> str:
    given = [str(path) for path in dirs[:_DIRS_SHOWN]]
    rest = f"  # and {len(dirs) - _DIRS_SHOWN} more runs" if len(dirs) > _DIRS_SHOWN else ""
    return shlex.join(["clearl", "report", *given, "--out", str(out)]) + rest


def _suites(arms: Sequence[Any]) -> list[str]:
    suites = dict.fromkeys(str(run.meta.get("suite") or "these tasks") for arm in arms for run in arm.runs)
    return list(suites)


def _write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
