"""`clearl resume`: continue a run where it stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, Trust, parse_run
from clearl.cli.run import train
from clearl.config import from_yaml, parse_yaml
from clearl.errors import RunDirectoryError
from clearl.plugins import import_asked, named_modules
from clearl.records.run_dir import CONFIG_FILE, RunDir

ABOUT = """Continue a run from its newest valid checkpoint, with its own settings. Flags may
change what does not affect learning: evaluation, checkpoints, mirrors, device, workers; others are refused."""


@dataclass(frozen=True)
class ResumeArgs:
    """Flags of `clearl resume` beside the settings of a run."""

    run: Annotated[str, POSITIONAL, "the run directory"]
    arm: Annotated[str | None, "another name under which reports show this run"] = None
    quiet: Annotated[bool, "no live view"] = False
    trust: Trust = False


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args, flags = parse_run(ResumeArgs, argv, verb="resume", about=ABOUT)
    run_dir = RunDir.open(Path(args.run))
    text, source = run_dir.config_text, str(run_dir.path / CONFIG_FILE)
    # Before the keys are checked: what is imported may declare some of them.
    import_asked(parse_yaml(text, source), source=args.run, imports=named_modules(flags), trust=args.trust)
    config = from_yaml(text, source)
    if config.protocol == "separate" and "parts" not in run_dir.meta:
        raise RunDirectoryError(f"{args.run} is one part of a separate run; resume the whole: {run_dir.path.parent}")
    return train(replace(config, **flags), args.run, console=not args.quiet, arm=args.arm)
