"""The paper's experiments as data: which arms, on which tasks, at which scale; and how one is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clearl.config import RunConfig, resolve
from clearl.errors import UnknownNameError

Scale = Literal["smoke", "laptop", "paper"]
Settings = Mapping[str, Any]

ARMS: dict[str, Settings] = {
    "separate": {"method": "baseline", "protocol": "separate"},
    "simultaneous": {"method": "baseline", "protocol": "simultaneous"},
    "sequential": {"method": "baseline"},
    "clear": {"replay_fraction": 0.5},
    "clear-no-cloning": {"replay_fraction": 0.5, "policy_cloning_weight": 0.0, "value_cloning_weight": 0.0},
    "clear-75-25": {"replay_fraction": 0.25},
    "clear-100-replay": {"replay_fraction": 1.0},
    "clear-buffer-1/18": {"replay_fraction": 0.5, "buffer_share": 1 / 18},
    "clear-buffer-1/180": {"replay_fraction": 0.5, "buffer_share": 1 / 180},
    "ewc": {"method": "ewc"},
    "online-ewc": {"method": "online-ewc"},
    "progress-compress": {"method": "progress-compress"},
    "progress-compress+clear": {"method": "progress-compress+clear", "replay_fraction": 0.25},
}
"""Every arm under the name that reports know it by. An arm that two studies share is one run."""


@dataclass(frozen=True)
class Study:
    """One experiment of the paper."""

    figure: str
    question: str
    arms: tuple[str, ...]
    turns_on: tuple[str, ...]
    """The arms that decide it: those are also run on the whole games."""
    probes: bool = False


STUDIES: dict[str, Study] = {
    "interference": Study(
        "Fig. 1",
        "is it interference between tasks, or forgetting?",
        arms=("separate", "simultaneous", "sequential"),
        turns_on=("simultaneous", "sequential"),
    ),
    "stability": Study(
        "Fig. 2 and table",
        "does CLEAR keep what was learnt?",
        arms=("separate", "simultaneous", "sequential", "clear", "clear-no-cloning"),
        turns_on=("sequential", "clear"),
    ),
    "plasticity": Study(
        "Fig. 3",
        "is a new task learnt as well late as early?",
        arms=("sequential", "clear", "clear-100-replay"),
        turns_on=(),
        probes=True,
    ),
    "balance": Study(
        "Fig. 4",
        "how much of a batch should be replay?",
        arms=("sequential", "clear-75-25", "clear", "clear-100-replay"),
        turns_on=("clear", "clear-100-replay"),
    ),
    "buffers": Study(
        "Fig. 5",
        "how small may the buffer be?",
        arms=("clear", "clear-buffer-1/18", "clear-buffer-1/180"),
        turns_on=("clear", "clear-buffer-1/180"),
    ),
    "comparison": Study(
        "Fig. 6 and table",
        "how does CLEAR compare with methods that must know the boundaries?",
        arms=("sequential", "clear-75-25", "ewc", "online-ewc", "progress-compress", "progress-compress+clear"),
        turns_on=(),
    ),
}


@dataclass(frozen=True)
class Stage:
    """Tasks and a budget on which arms are compared; each stage has a report of its own."""

    name: str
    preset: str
    seeds: int
    settings: Settings = field(default_factory=dict)
    probe_task: str | None = None
    probe_positions: tuple[int, ...] = ()
    only_deciding: bool = False


_SMOKE: Settings = {
    "runtime": "inline",
    "cycles": 1,
    "frames_per_visit": 1_920,
    "slots": 8,
    "batch_unrolls": 8,
    "eval_episodes": 2,
    "eval_max_steps": 100,
    "eval_every_frames": 960,
    "fisher_batches": 2,
    "replay_store": "ram",
}
_LAPTOP: Settings = {"cycles": 4, "keep_replay": False}
_GAMES: Settings = {
    "tasks": ("breakout", "space_invaders"),
    "cycles": 2,
    "frames_per_visit": 700_000,
    "keep_replay": False,
}
_DMLAB_PROBE = "natlab_varying_map_randomized"

SCHEMES = "minatar-schemes"
SCALES: dict[Scale, tuple[Stage, ...]] = {
    "smoke": (Stage("schemes", SCHEMES, 1, _SMOKE, "breakout@3", (1, 3)),),
    "laptop": (
        Stage("schemes", SCHEMES, 5, _LAPTOP, "breakout@3", (1, 6, 11)),
        Stage("games", "minatar", 3, _GAMES, only_deciding=True),
    ),
    "paper": (Stage("dmlab", "paper-dmlab", 3, {}, _DMLAB_PROBE, (1, 5, 9, 13)),),
}
_PAPER_ATARI = Stage("atari", "paper-atari", 3)


@dataclass(frozen=True)
class StudyRun:
    """One run of a study: an arm, a seed, and where it is kept."""

    stage: str
    arm: str
    seed: int
    config: RunConfig
    directory: str
    """Below the output directory; the same for every study that has this run."""


def stages_of(study: str, scale: Scale) -> tuple[Stage, ...]:
    """The stages of a study at a scale; the paper's comparison is on Atari."""
    if study not in STUDIES:
        raise UnknownNameError("study", study, STUDIES)
    return (_PAPER_ATARI,) if (study, scale) == ("comparison", "paper") else SCALES[scale]


def plan_study(
    study: str, scale: Scale, *, seeds: int | None = None, settings: Settings | None = None
) -> list[StudyRun]:
    """Every run of a study, seeds outermost, so that a study that is stopped early has whole seeds."""
    runs = []
    for stage in stages_of(study, scale):
        for seed in range(seeds or stage.seeds):
            runs += [_study_run(stage, arm, probe, seed, settings or {}) for arm, probe in _arms(STUDIES[study], stage)]
    return runs


def _arms(study: Study, stage: Stage) -> Iterator[tuple[str, int | None]]:
    for arm in study.turns_on if stage.only_deciding else study.arms:
        for position in stage.probe_positions if study.probes else (None,):
            yield arm, position


def _study_run(stage: Stage, arm: str, probe: int | None, seed: int, settings: Settings) -> StudyRun:
    probing = (
        {"protocol": "probe", "probe_task": stage.probe_task, "probe_position": probe} if probe is not None else {}
    )
    config = resolve(stage.preset, flags={**stage.settings, **ARMS[arm], **probing, "seed": seed, **settings})
    at = "" if probe is None else f"-probe-{probe}"
    return StudyRun(stage.name, arm, seed, config, f"{stage.name}/{arm.replace('/', '-of-')}{at}/seed-{seed}")


def run_study(runs: list[StudyRun], out: Path, *, console: bool) -> str:
    """Run what is not finished yet; "finished", or "interrupted" if the user stopped it."""
    from clearl.experiment import run

    for each in runs:
        result = run(each.config, out / each.directory, console=console, arm=each.arm)
        if result.status == "interrupted":
            return "interrupted"
    return "finished"
