"""`clearl eval`: how well the trained agent does."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, Imports, Trust, parse
from clearl.config import Between

ABOUT = "Play whole episodes of every task with the newest good checkpoint of a run, and print the unclipped scores."


@dataclass(frozen=True)
class EvalArgs:
    """What `clearl eval` takes."""

    run: Annotated[str, POSITIONAL, "the run directory"]
    episodes: Annotated[int, Between(1, 100_000), "episodes of each task"] = 32
    tasks: Annotated[tuple[str, ...], "comma-separated; default: all of the run"] = ()
    json: Annotated[str | None, "write the scores of every episode to this file, too"] = None
    imports: Imports = ()
    trust: Trust = False


def main(argv: list[str]) -> int:
    """Run the verb; the exit code."""
    args = parse(EvalArgs, argv, verb="eval", about=ABOUT)

    from clearl.play import evaluate_run

    evaluations = []
    for evaluation in evaluate_run(
        Path(args.run), episodes=args.episodes, tasks=args.tasks, imports=args.imports, trust=args.trust
    ):
        column = f" ({evaluation.column})" if evaluation.column else ""
        print(f"{evaluation.task}: {evaluation.mean:.2f} +- {evaluation.std:.2f} over {args.episodes} episodes{column}")
        evaluations.append(asdict(evaluation))
    if args.json:
        Path(args.json).write_text(json.dumps({"v": 1, "run": args.run, "evaluations": evaluations}, indent=2) + "\n")
    return 0
