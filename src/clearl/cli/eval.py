"""`clearl eval`: measure the trained agent's scores."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, Imports, Trust, parse
from clearl.cli.output import check_writable, tell_origin, warn
from clearl.config import Between

ABOUT = "Play whole episodes of every task with the newest valid checkpoint of a run, and print the unclipped scores."


@dataclass(frozen=True)
class EvalArgs:
    """Flags of `clearl eval`."""

    run: Annotated[str, POSITIONAL, "the run directory"]
    episodes: Annotated[int, Between(1, 100_000), "episodes of each task"] = 32
    tasks: Annotated[tuple[str, ...], "comma-separated; default: all of the run"] = ()
    json: Annotated[str | None, "write the scores of every episode to this file, too"] = None
    imports: Imports = ()
    trust: Trust = False


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(EvalArgs, argv, verb="eval", about=ABOUT)

    from clearl.runtimes.local.guard import guarded

    with guarded():
        _evaluate(args)
    return 0


def _evaluate(args: EvalArgs) -> None:
    from clearl.play import evaluate, open_parts

    here = Path.cwd()  # environments may change it
    file, evaluations = here / args.json if args.json else None, []
    for trained in open_parts(here / args.run, args.tasks, imports=args.imports, trust=args.trust):
        if file is not None:
            check_writable(file)
        tell_origin(trained.agent.origin)
        frames = trained.agent.origin.frames if trained.agent.origin else None
        for evaluation in evaluate(trained, episodes=args.episodes, tell=warn):
            column = f" ({evaluation.column})" if evaluation.column else ""
            score = f"{evaluation.mean:.2f} +- {evaluation.std:.2f}"
            rate = evaluation.success_rate
            success = "" if rate is None else f", success rate {rate:.2f}"
            print(f"{evaluation.task}: {score}{success} over {args.episodes} episodes{column}", flush=True)
            evaluations.append({**asdict(evaluation), "success_rate": rate, "frames": frames})
    if file is not None:
        file.write_text(json.dumps({"v": 1, "run": args.run, "evaluations": evaluations}, indent=2) + "\n")
