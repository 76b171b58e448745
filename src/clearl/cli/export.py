"""`clearl export`: the trained agent as files that need no run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, Imports, Trust, parse
from clearl.cli.output import tell_origin

ABOUT = """Write the agent of the newest valid checkpoint to a directory of its own.

clearl: agent.safetensors and agent.json, for clearl.load_agent(OUT). onnx: policy.onnx, which needs onnxruntime only.
torch: policy.pt2, which needs torch only. policy.json then describes inputs, outputs and tasks; see docs/export.md."""


@dataclass(frozen=True)
class ExportArgs:
    """Flags of `clearl export`."""

    run: Annotated[str, POSITIONAL, "the run directory"]
    out: Annotated[str, "the directory to write to: new or empty"]
    format: Annotated[tuple[str, ...], "comma-separated: clearl, onnx, torch"] = ("clearl",)
    card: Annotated[bool, "write a model card, too: README.md with the results of each task, and the run's videos"] = (
        False
    )
    imports: Imports = ()
    trust: Trust = False


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(ExportArgs, argv, verb="export", about=ABOUT)

    from clearl.artifacts import export_agent

    run, out = Path(args.run).absolute(), Path(args.out).absolute()  # environments may change the directory
    card_for = args.out if args.card else None
    tell_origin(export_agent(run, out, formats=args.format, card_for=card_for, imports=args.imports, trust=args.trust))
    for file in sorted(file for file in out.rglob("*") if file.is_file()):
        print(Path(args.out) / file.relative_to(out))
    if "clearl" in args.format:
        print(f'{args.out}: agent = clearl.load_agent("{args.out}"); agent.act(observation)')
    return 0
