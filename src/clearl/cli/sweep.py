"""`clearl sweep`: runs out of a file of arms, settings and seeds, several at a time, and one report at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from clearl.cli.arguments import POSITIONAL, Trust, parse
from clearl.cli.main import INTERRUPTED
from clearl.config import Between, load_yaml
from clearl.errors import ClearlError, ConfigError
from clearl.plugins import import_asked
from clearl.runtimes.host import cores

if TYPE_CHECKING:
    from clearl.reproduce.sweep import Sweep

ABOUT = (
    "Run every arm, setting and seed of sweep files, one file after another, then write a report of each. The same "
    "command resumes where it stopped; OUT/status.txt says in one line what is done, what is running and what is next."
)


@dataclass(frozen=True)
class SweepArgs:
    """Flags of `clearl sweep`."""

    files: Annotated[tuple[str, ...], POSITIONAL, "sweep files, in the order in which they are run"]
    out: Annotated[str, "where runs and reports go"] = "runs/sweep"
    jobs: Annotated[int | None, Between(1, 1024), "runs at once; default: a core for each process of a run"] = None
    dry_run: Annotated[bool, "only list the runs"] = False
    imports: Annotated[tuple[str, ...], "modules to import first; those that a file names need to be among them"] = ()
    trust: Trust = False
    commands: Annotated[bool, "write the config files and print a command for each run, for a batch system"] = False


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(SweepArgs, argv, verb="sweep", about=ABOUT)

    from clearl.reproduce.sweep import command_lines, load_sweep
    from clearl.reproduce.sweep_file import modules_of

    for file in args.files:
        # Before the keys are checked: what is imported may declare some of them.
        named = {"imports": modules_of(load_yaml(Path(file)))}
        import_asked(named, source=file, imports=args.imports, trust=args.trust)
    sweeps = [load_sweep(Path(file)) for file in args.files]
    _check_plans(args.files, sweeps, here=not (args.dry_run or args.commands))
    runs = tuple(run for sweep in sweeps for run in sweep.runs)
    out = Path(args.out)
    if args.dry_run:
        print("\n".join(run.path.removeprefix("runs/") for run in runs))
        return 0
    if args.commands:
        from clearl.reproduce.runner import write_configs

        write_configs(runs, out)
        print("\n".join(command_lines(runs, out)))
        return 0

    from clearl.cli.showing import show_report
    from clearl.reproduce.runner import default_jobs, is_finished, run_all

    jobs = args.jobs or default_jobs(runs, cores())
    print(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}, {jobs} at a time, in {out}", flush=True)
    try:
        complete = run_all(runs, out, jobs=jobs)
    finally:  # of what there is, where some runs failed, too
        for sweep in sweeps:
            done = [out / run.path for run in sweep.runs if is_finished(out / run.path)]
            if done:
                show_report(done, out / "reports" / sweep.name, title=sweep.title)
    if not complete:
        print("stopped; the same command resumes")
    return 0 if complete else INTERRUPTED


def _check_plans(files: Sequence[str], sweeps: Sequence[Sweep], *, here: bool) -> None:
    """Refuse before the first run what a later one could not plan: a method or a task that does not exist.

    What only this machine lacks, such as a package, is an error only if the runs are to start `here`.
    """
    from clearl.wiring import planned

    for file, sweep in zip(files, sweeps, strict=True):
        alike = {(run.arm, run.config.probe_position, run.config.tasks): run for run in sweep.runs}  # all but the seeds
        for run in alike.values():
            try:
                planned(run.config)
            except ClearlError as error:
                if here or isinstance(error, ConfigError):
                    raise ConfigError(f"sweep file {file}: {run.arm}: {error}") from error
