"""`clearl run`: train an agent on a stream of tasks."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clearl.cli.arguments import Trust, parse_run
from clearl.cli.main import INTERRUPTED
from clearl.cli.output import silence, tell, warn
from clearl.config import RunConfig, from_yaml, load_yaml, parse_yaml, resolve
from clearl.errors import ConfigError
from clearl.plugins import import_asked, import_plugins, named_modules
from clearl.records.run_dir import RunDir
from clearl.records.shield import Shield
from clearl.runtimes.host import quick_imports
from clearl.runtimes.local.processes import prewarm, workers_of
from clearl.suites import SUITES, KnowsSpec

if TYPE_CHECKING:
    from clearl.tasks.plan import Plan

_FACTORY_ENTRY = "clearl.wiring:load_factory"
"""`FACTORY_ENTRY` of wiring.py, which imports torch: children do their imports before this process does."""

ABOUT = """Train one agent on a stream of tasks. The same command on the same directory resumes where it stopped.
Settings come from the defaults, then --preset, then --config, then the flags below; `none` unsets one."""


@dataclass(frozen=True)
class RunArgs:
    """Flags of `clearl run` beside the settings of a run."""

    out: Annotated[str | None, "the run directory: made, or resumed if it holds this run"] = None
    config: Annotated[str | None, "a YAML file with settings, such as config.yaml of another run"] = None
    arm: Annotated[str | None, "the name under which reports show this run; default: the method"] = None
    quiet: Annotated[bool, "no live view"] = False
    overwrite: Annotated[bool, "delete the run that the directory holds, and start anew"] = False
    trust: Trust = False
    from_: Annotated[
        str | None, "continue a copy of this run, its agent and its replay buffer, with the next tasks"
    ] = None
    extend: Annotated[str | None, "continue this run itself with the next tasks"] = None
    dry_run: Annotated[bool, "draw the plan of the run and start nothing"] = False


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args, flags = parse_run(RunArgs, argv, verb="run", about=ABOUT)
    if args.from_ is not None or args.extend is not None:
        return go_on(args, flags)
    if args.out is None:
        raise ConfigError("run needs --out; clearl run --help says more")
    if args.config:
        # Before the keys are checked: what is imported may declare some of them.
        in_file = load_yaml(Path(args.config))
        import_asked(in_file, source=args.config, imports=named_modules(flags), trust=args.trust)
    config = resolve(file=args.config, flags=flags)
    import_plugins(config.modules)
    if args.dry_run:
        return _show_plan(config, Path(args.out))
    return train(config, args.out, console=not args.quiet, arm=args.arm, overwrite=args.overwrite)


def go_on(args: RunArgs, flags: dict[str, Any]) -> int:
    """Extend a run, or a copy of it, by the next tasks, and train on."""
    source, out = args.from_ or args.extend, args.out if args.from_ else args.extend
    if (args.from_ and args.extend) or (args.extend and args.out) or not source or not out:
        raise ConfigError("give either --from RUN with --out for the copy that goes on, or --extend RUN alone")
    if args.config or args.overwrite:
        raise ConfigError("--from and --extend take the settings of the run and the flags; no --config or --overwrite")
    named = parse_yaml(RunDir.open(Path(source)).config_text, source)
    import_asked(named, source=source, imports=named_modules(flags), trust=args.trust)
    with quick_imports():
        from clearl.continuation import extend_run, fork_run, plan_extension, unfinished_extension

    if not unfinished_extension(Path(out), Path(args.from_) if args.from_ else None, flags):
        extension = plan_extension(Path(source), flags)
        for note in extension.saved.notes:
            warn(note)
        for name, (old, new) in extension.changes.items():
            tell(f"{name}: {old} -> {new}")
        if extension.revisited:
            tell(f"trained before, and visited again: {', '.join(extension.revisited)}")
        if extension.growth is not None:
            tell(f"the agent grows: {extension.growth}")
        if args.dry_run:
            _draw([extension.plan])
            print(extension.replay["forecast"])
            return 0
        if extension.replay_lost:
            tell(
                f"the replay buffer of {source} is gone (kept in RAM, or keep_replay was off): it fills anew from here"
            )
        if args.from_:
            copied = fork_run(extension, Path(out))
            tell(f"{out} goes on from frame {extension.frames:,} of {source}; {copied / 1e6:,.1f} MB of replay copied")
        else:
            extend_run(extension)
            tell(f"{out} goes on from frame {extension.frames:,}")
    config = from_yaml(RunDir.open(Path(out)).config_text, out)
    return train(config, out, console=not args.quiet, arm=args.arm)


def _show_plan(config: RunConfig, out: Path) -> int:
    from clearl.wiring import planned, planned_remarks

    plans = planned(config)
    _draw(plans)
    replay, doubts = planned_remarks(config, out, plans[0])
    print(replay)
    for doubt in doubts:
        warn(doubt)
    return 0


def _draw(plans: Sequence[Plan]) -> None:
    from clearl.cli.plan import draw_plans

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    print(draw_plans(plans, plain="utf" not in encoding.lower()))


def train(config: RunConfig, out: str, **options: Any) -> int:
    """Train into `out` and say how it ended; return the exit code."""
    if options.get("console"):
        _announce(out)
    with prewarm(config, _FACTORY_ENTRY, partial(_workers, config)):
        with quick_imports():
            from clearl.experiment import run

        result = run(config, Path(out), **options)
    if result.status == "interrupted":
        tell(f"stopped; clearl resume {shlex.quote(out)} goes on, and so does the same command")
        return INTERRUPTED
    state = "finished" if result.trained else "finished already, nothing to do"
    tell(f"{state}: {out} (clearl report {shlex.quote(out)} draws it)")
    return 0


def _workers(config: RunConfig) -> int | None:
    """Return the number of workers that a run will have, where its suite tells before it is made."""
    with quick_imports():
        suite = SUITES.get(config.suite.partition(":")[0])
        return workers_of(config, suite.spec_for(config), suite) if isinstance(suite, KnowsSpec) else None


def _announce(out: str) -> None:
    """Show a first line before the imports, which take seconds; where nothing can be shown, show no more."""
    shield = Shield("the live view")
    shield.call(lambda: print(f"{out}: starting", flush=True))
    if shield.failed:
        silence()
