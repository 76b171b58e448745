"""`clearl report`: page, figures and tables out of run directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, parse
from clearl.cli.showing import show_report

ABOUT = """Compare runs: index.html (opens offline), figures (svg, png), tables (md, csv, tex) and summary.json.
Runs that differ only in their seed form one arm; directories are searched for runs."""


@dataclass(frozen=True)
class ReportArgs:
    """Flags of `clearl report`."""

    runs: Annotated[tuple[str, ...], POSITIONAL, "run directories, or directories with runs in them"]
    out: Annotated[str, "the directory to write to"] = "report"
    title: Annotated[str | None, "the title of the page; default: by the suite"] = None
    paper: Annotated[bool, "show the paper's own tables and claims beside; default: on its suites only"] = False


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(ReportArgs, argv, verb="report", about=ABOUT)
    show_report([Path(run) for run in args.runs], Path(args.out), title=args.title, paper=args.paper)
    return 0
