"""`clearl forget`: drop a task from memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, parse
from clearl.cli.output import tell, warn
from clearl.config import Between

ABOUT = """Delete a task's unrolls from the replay buffer of a stopped run, so that they are no longer trained on or
cloned. What the network has learnt stays, and the rest of the buffer remains a uniform sample. Continue with clearl
resume or clearl run --from."""


@dataclass(frozen=True)
class ForgetArgs:
    """Flags of `clearl forget`."""

    run: Annotated[str, POSITIONAL, "the run directory"]
    task: Annotated[str, "the task to forget; `unknown` for unrolls of version 0.1, which have no label"]
    older_than: Annotated[int | None, Between(0, 1 << 60), "only unrolls played more than this many frames ago"] = None
    dry_run: Annotated[bool, "only say what would be dropped"] = False


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(ForgetArgs, argv, verb="forget", about=ABOUT)

    from clearl.forgetting import forget, plan_forgetting
    from clearl.replay.forecast import human_nbytes

    plan = plan_forgetting(Path(args.run), args.task, older_than_frames=args.older_than)
    for note in plan.notes:
        warn(note)
    if not args.dry_run:
        forget(plan)
    verb = "would drop" if args.dry_run else "dropped"
    age = "" if args.older_than is None else f" older than {args.older_than:,} frames"
    tell(
        f"{args.run}: {verb} {plan.unrolls:,} unrolls of {args.task}{age} ({human_nbytes(plan.nbytes)}); "
        f"{plan.left:,} unrolls stay"
    )
    return 0
