"""`clearl bench`: measure the speed of training, next to what this machine could do at best."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.bench.workloads import WORKLOADS, workload
from clearl.cli.arguments import POSITIONAL, parse
from clearl.cli.output import check_writable
from clearl.config import Between

ABOUT = """Measure environments, inference and the learner separately on all cores, then a real run with replay and
evaluation. Print the run's speed as a share of the ideal, 1 / (sum of 1 / rate). Do not use the machine meanwhile."""


@dataclass(frozen=True)
class BenchArgs:
    """Flags of `clearl bench`."""

    workload: Annotated[str, POSITIONAL, f"{', '.join(WORKLOADS)}, or all"]
    json: Annotated[str | None, "write all figures to this file, too"] = None
    repeats: Annotated[int, Between(3, 1000), "measurements of each figure, in turns"] = 3
    seconds: Annotated[float, Between(1, 86_400), "least length of a measured run; a stage takes a fifth"] = 20.0


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(BenchArgs, argv, verb="bench", about=ABOUT)
    names = list(WORKLOADS) if args.workload == "all" else [args.workload]
    for name in names:
        workload(name)
    if args.json:
        check_writable(Path(args.json))

    from clearl.bench.measure import measure
    from clearl.bench.table import as_table

    results = []
    for name in names:
        results.append(measure(name, repeats=args.repeats, seconds=args.seconds, say=_say))
        print(f"\n{as_table(results[-1])}\n", flush=True)
    if args.json:
        content = {"v": 1, "workloads": results} if args.workload == "all" else results[0]
        Path(args.json).write_text(json.dumps(content, indent=2) + "\n")
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
