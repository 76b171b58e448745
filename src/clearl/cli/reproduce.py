"""`clearl reproduce`: one experiment of the paper, with its arms, seeds, figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from clearl.cli.arguments import POSITIONAL, parse
from clearl.cli.main import INTERRUPTED
from clearl.cli.output import fitted, warn
from clearl.config import Between, RunConfig
from clearl.errors import ConfigError, MissingExtraError, UnknownNameError
from clearl.reproduce.catalog import EXPERIMENTS, Scale, guesses, planned_runs
from clearl.reproduce.planned import PlannedRun
from clearl.runtimes.host import cores

if TYPE_CHECKING:
    from clearl.reproduce.forecast import SequenceForecast

ABOUT = "Run all arms and seeds of one experiment of the paper, then write its report. The same command resumes.\n" + (
    "\n".join(f"  {name}: {each.paper}: {each.about}" for name, each in EXPERIMENTS.items())
)


@dataclass(frozen=True)
class ReproduceArgs:
    """Flags of `clearl reproduce`."""

    name: Annotated[str, POSITIONAL, "an experiment, e.g. stability; they are listed above"]
    scale: Annotated[Scale, "smoke: seconds; laptop: MinAtar, about an hour; paper: as far as published"] = "laptop"
    only: Annotated[str | None, "one of the scale's sequences of tasks, e.g. schemes; default: all"] = None
    seeds: Annotated[int | None, Between(1, 1000), "runs of each arm; default: the scale's"] = None
    out: Annotated[str | None, "where runs and reports go; experiments share their runs; default: by the scale"] = None
    jobs: Annotated[int | None, Between(1, 1024), "runs at once; default: one for each core, 1 at paper scale"] = None
    dry_run: Annotated[bool, "only say what it would run, and what that would take on this machine"] = False


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(ReproduceArgs, argv, verb="reproduce", about=ABOUT)
    runs = _only(args.only, planned_runs(args.name, args.scale, args.seeds))
    jobs = args.jobs or (1 if args.scale == "paper" else cores())
    if args.dry_run:
        return _dry_run(args.name, args.scale, runs, jobs)
    out = Path(args.out or f"runs/reproduce-{args.scale}")
    _check_installed(runs)

    from clearl.cli.showing import show_report
    from clearl.reproduce.runner import is_finished, run_all

    print(f"{args.name} at scale {args.scale}: {len(runs)} runs, {jobs} at a time, in {out}", flush=True)
    complete = run_all(runs, out, jobs=jobs)
    for sequence in dict.fromkeys(run.sequence for run in runs):
        done = [out / run.path for run in runs if run.sequence == sequence and is_finished(out / run.path)]
        if done:
            title = f"{args.name} ({EXPERIMENTS[args.name].paper}), {sequence}"
            show_report(done, out / "reports" / args.name / sequence, title=title, paper=True)
    if not complete:
        print("stopped; the same command resumes")
    return 0 if complete else INTERRUPTED


def _only(sequence: str | None, runs: list[PlannedRun]) -> list[PlannedRun]:
    known = list(dict.fromkeys(run.sequence for run in runs))
    if sequence is not None and sequence not in known:
        raise UnknownNameError("sequence of tasks of this experiment and scale", sequence, known)
    return [run for run in runs if sequence in (None, run.sequence)]


def _check_installed(runs: Sequence[PlannedRun]) -> None:
    """Refuse before the first run what a later sequence of tasks would lack."""
    from clearl.wiring import run_frames

    first = {run.sequence: run for run in reversed(runs)}
    for run in first.values():
        try:
            run_frames(run.config)
        except MissingExtraError as error:
            others = [sequence for sequence in first if sequence != run.sequence]
            hint = f"; or run {' or '.join(f'--only {sequence}' for sequence in others)}" if others else ""
            raise ConfigError(f"{run.sequence}: {error}{hint}") from error


def _dry_run(name: str, scale: Scale, runs: Sequence[PlannedRun], jobs: int) -> int:
    from clearl.reproduce.forecast import forecast

    seeds: dict[str, list[int]] = {}
    for run in runs:
        arm = run.path.removeprefix("runs/").rpartition("/")[0]
        seeds.setdefault(f"{arm}: {_plan_line(run.config)}", []).append(run.config.seed)
    for arm, of_arm in seeds.items():
        print(fitted(f"{arm}, {'seeds' if len(of_arm) > 1 else 'seed'} {', '.join(map(str, of_arm))}"))
    warn("measuring the speed on this machine, half a minute or more ...")
    for row in forecast(runs):
        print(fitted(_forecast_line(name, row, jobs)))
    for guess in guesses(name, scale):
        print(fitted(f"guessed: {guess}"))
    return 0


def _plan_line(config: RunConfig) -> str:
    visits = f"{config.cycles} cycles of {len(config.tasks)} tasks"
    if config.frames_per_visit is None:
        return f"{config.protocol}, {visits}, {config.episodes_per_visit:,} episodes a visit"
    return f"{config.protocol}, {visits}, {config.frames_per_visit:,} frames a visit"


def _forecast_line(name: str, row: SequenceForecast, jobs: int) -> str:
    hours, speed = row.hours(jobs), "speed not measured"
    if hours is not None:
        rate = f"{row.frames_per_s:,.0f} frames/s a run, {jobs} at a time"
        speed = f"{hours:,.1f} hours at {rate}"
        if row.missing:
            speed = f"at least {speed}, the learner alone"
    missing = f"; missing: {row.missing}" if row.missing else ""
    return (
        f"{name} on {row.sequence}: {row.runs} runs, {row.frames:,} frames, {speed}, "
        f"at most {row.replay_bytes / 1e9:,.2f} GB of replay a run{missing}"
    )
