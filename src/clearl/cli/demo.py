"""`clearl demo`: forgetting and its cure, on this machine, in minutes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from clearl.cli.arguments import parse
from clearl.cli.main import INTERRUPTED
from clearl.cli.showing import show_report
from clearl.config import Between, RunConfig, resolve

ABOUT = """Train the plain baseline and CLEAR on the same cyclic sequence of MinAtar tasks, and show what each of them
forgets. Two games take at most ten minutes on two cores; --fast uses three control schemes of one game."""

ARMS = {"sequential": "baseline", "clear": "clear"}
"""The arms by the names that reports know, and the method of each."""
GAMES: dict[str, Any] = {
    "tasks": ("breakout", "space_invaders"), "cycles": 2, "frames_per_visit": 700_000,
    "pairs": "both",  # visits this short leave no new experience to spare; the baseline has no pairs
}  # fmt: skip


@dataclass(frozen=True)
class DemoArgs:
    """Flags of `clearl demo`."""

    fast: Annotated[bool, "three control schemes of Breakout instead of two games"] = False
    seed: Annotated[int, Between(0, 2**63 - 1), "every random number follows from it"] = 0
    frames_per_visit: Annotated[int | None, Between(1, 10**9), "frames of one visit; default: by the sequence"] = None
    out: Annotated[str | None, "where the two runs go; default: runs/demo or runs/demo-fast"] = None
    report: Annotated[str, "where the report goes"] = "report"
    runtime: Annotated[str, "inline: one process; local: worker processes"] = "local"
    quiet: Annotated[bool, "no live view"] = False


def arms(args: DemoArgs) -> dict[str, RunConfig]:
    """Return the settings of each arm; they differ by the method alone."""
    preset, flags = ("minatar-schemes", {}) if args.fast else ("minatar", dict(GAMES))
    flags |= {"seed": args.seed, "runtime": args.runtime}
    if args.frames_per_visit is not None:
        flags["frames_per_visit"] = args.frames_per_visit
    return {arm: resolve(preset, flags={**flags, "method": method}) for arm, method in ARMS.items()}


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(DemoArgs, argv, verb="demo", about=ABOUT)
    configs = arms(args)

    from clearl.experiment import run
    from clearl.records.run_dir import holds_run

    out = Path(args.out or ("runs/demo-fast" if args.fast else "runs/demo"))
    paths = {arm: out / f"{arm}-seed-{args.seed}" for arm in configs}
    status = "finished"
    for arm, config in configs.items():
        status = run(config, paths[arm], console=not args.quiet, arm=arm).status
        if status == "interrupted":
            break
    begun = [path for path in paths.values() if holds_run(path)]
    show_report(begun, Path(args.report), title="Forgetting and its cure")
    if status == "interrupted":
        print("stopped; the same command resumes")
        return INTERRUPTED
    return 0
