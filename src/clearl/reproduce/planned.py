"""A planned run: its settings, its place below the output directory, and the commands that run it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from clearl.config import RunConfig


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment: what it is, and where it goes below the output directory."""

    sequence: str
    arm: str
    config: RunConfig

    @property
    def path(self) -> str:
        """The run's path below the output directory; the same for every experiment that shares the run."""
        arm = re.sub(r"[^\w.+@-]+", "-", self.arm.replace("/", "-of-")).strip("-")
        probe = f"-probe-{self.config.probe_position}" if self.config.protocol == "probe" else ""
        return f"runs/{self.sequence}/{arm}{probe}/seed-{self.config.seed}"


def config_path(run: Path) -> Path:
    """Return the path for the settings of a planned run: beside its directory, which only the run itself makes."""
    return run.with_name(run.name + ".yaml")


def run_command(config: RunConfig, file: Path, out: Path, *, arm: str | None = None) -> list[str]:
    """Build the words of the command that runs `config`, which `file` holds, into `out`."""
    command = ["clearl", "run", "--config", str(file), "--out", str(out), "--quiet"]
    if arm is not None:
        command += ["--arm", arm]
    if config.modules:  # a config file may not import anything by itself
        command += ["--imports", ",".join(config.modules)]
    return command


def forget_commands(config: RunConfig, file: Path, out: Path, *, arm: str) -> list[list[str]]:
    """Build the commands of a run that forgets its first task before it goes on with the others.

    `file` holds the settings of the first part, which goes beside `out`. Each command does nothing if it was done.
    """
    first, rest = first_part(out), config.tasks[1:]
    return [
        run_command(config, file, first, arm=arm),
        ["clearl", "forget", str(first), "--task", config.tasks[0]],
        ["clearl", "run", "--from", str(first), "--tasks", ",".join(rest), "--out", str(out), "--quiet", "--arm", arm],
    ]


def first_part(out: Path) -> Path:
    """Return the path of the first part of a run that forgets: beside it, as its report shows both parts."""
    return out.with_name(f"{out.name}-first")


def plain_frames(config: RunConfig) -> int:
    """Count the frames of a run whose suite cannot be made here."""
    visits = (
        len(config.tasks) * config.cycles if config.protocol != "probe" else (len(config.tasks) - 1) * config.cycles
    )
    return (visits + (config.protocol == "probe")) * (config.frames_per_visit or 0)
