"""`clearl export`: the trained agent as files that need no run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, Imports, Trust, parse
from clearl.cli.output import tell_origin

ABOUT = """Write the agent of the newest good checkpoint: agent.safetensors, and agent.json, which says what they fit.
clearl.load_agent(OUT) loads it again."""


@dataclass(frozen=True)
class ExportArgs:
    """What `clearl export` takes."""

    run: Annotated[str, POSITIONAL, "the run directory"]
    out: Annotated[str, "the directory to write to: new or empty"]
    imports: Imports = ()
    trust: Trust = False


def main(argv: list[str]) -> int:
    """Run the verb; the exit code."""
    args = parse(ExportArgs, argv, verb="export", about=ABOUT)

    from clearl.artifacts import export_agent

    tell_origin(export_agent(Path(args.run), Path(args.out), imports=args.imports, trust=args.trust))
    print(f'{args.out}: agent = clearl.load_agent("{args.out}"); agent.act(observation)')
    return 0
