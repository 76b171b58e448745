"""`clearl leaderboard`: methods x suites out of run directories, as one page."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, parse
from clearl.cli.output import tell

ABOUT = """Rank methods on each suite: normalised score, forgetting, forward transfer, memory, frames/s, each with its
interval over seeds. Writes index.html (opens offline), leaderboard.md and leaderboard.json."""


@dataclass(frozen=True)
class LeaderboardArgs:
    """Flags of `clearl leaderboard`."""

    runs: Annotated[tuple[str, ...], POSITIONAL, "run directories, or directories with runs in them"]
    out: Annotated[str, "the directory to write to"] = "leaderboard"


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(LeaderboardArgs, argv, verb="leaderboard", about=ABOUT)

    from clearl.report import make_leaderboard

    command = shlex.join(["clearl", "leaderboard", *args.runs, "--out", args.out])
    for entry in make_leaderboard([Path(run) for run in args.runs], Path(args.out), command=command):
        score = "–" if entry.score is None else f"{entry.score.value:.2f}"
        tell(f"{score:>6}  {entry.method}  ({entry.suite}, {entry.seeds} {'seed' if entry.seeds == 1 else 'seeds'})")
    tell(f"leaderboard: {Path(args.out) / 'index.html'}")
    return 0
