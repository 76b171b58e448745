"""`clearl run`: train an agent on a stream of tasks."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from clearl.cli.arguments import Trust, parse_run
from clearl.cli.main import INTERRUPTED
from clearl.cli.output import tell
from clearl.config import RunConfig, load_yaml, resolve
from clearl.plugins import import_asked, import_plugins, named_modules
from clearl.runtimes.host import quick_imports
from clearl.runtimes.local.processes import prewarm

ABOUT = """Train one agent on a stream of tasks. The same command on the same directory goes on where it stopped.
Settings come from the defaults, then --preset, then --config, then the flags below; `none` unsets one."""


@dataclass(frozen=True)
class RunArgs:
    """What `clearl run` takes beside the settings of a run."""

    out: Annotated[str, "the run directory: made, or resumed if it holds this run"]
    config: Annotated[str | None, "a YAML file with settings, such as config.yaml of another run"] = None
    arm: Annotated[str | None, "the name under which reports show this run; default: the method"] = None
    quiet: Annotated[bool, "no live view"] = False
    overwrite: Annotated[bool, "delete the run that the directory holds, and start anew"] = False
    trust: Trust = False


def main(argv: list[str]) -> int:
    """Run the verb; the exit code."""
    args, flags = parse_run(RunArgs, argv, verb="run", about=ABOUT)
    if args.config:
        # Before the keys are checked: what is imported may declare some of them.
        in_file = load_yaml(Path(args.config))
        import_asked(in_file, source=args.config, imports=named_modules(flags), trust=args.trust)
    config = resolve(file=args.config, flags=flags)
    import_plugins(named_modules(vars(config)))
    return train(config, args.out, console=not args.quiet, arm=args.arm, overwrite=args.overwrite)


def train(config: RunConfig, out: str, **options: Any) -> int:
    """Train into `out` and say how it ended; the exit code."""
    with prewarm(config, "clearl.experiment"):
        with quick_imports():
            from clearl.experiment import run

        result = run(config, Path(out), **options)
    if result.status == "interrupted":
        tell(f"stopped; clearl resume {shlex.quote(out)} goes on, and so does the same command")
        return INTERRUPTED
    state = "finished" if result.trained else "finished already, nothing to do"
    tell(f"{state}: {out} (clearl report {shlex.quote(out)} draws it)")
    return 0
