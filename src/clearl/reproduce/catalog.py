"""The experiments of the paper as data: names, arms, scales. Pure: nothing here runs anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from clearl.config import resolve
from clearl.errors import ConfigError, UnknownNameError
from clearl.reproduce.planned import PlannedRun

Scale = Literal["smoke", "laptop", "paper"]

ARMS: dict[str, dict[str, Any]] = {
    "separate": {"method": "baseline", "protocol": "separate"},
    "simultaneous": {"method": "baseline", "protocol": "simultaneous"},
    "sequential": {"method": "baseline"},
    "clear": {"method": "clear", "replay_fraction": 0.5},
    "clear-no-cloning": {
        "method": "clear",
        "replay_fraction": 0.5,
        "policy_cloning_weight": 0.0,
        "value_cloning_weight": 0.0,
    },
    "clear-75-25": {"method": "clear", "replay_fraction": 0.25},
    "clear-100-replay": {"method": "clear", "replay_fraction": 1.0},
    "clear-buffer-1/18": {"method": "clear", "replay_fraction": 0.5, "buffer_share": 1 / 18},
    "clear-buffer-1/180": {"method": "clear", "replay_fraction": 0.5, "buffer_share": 1 / 180},
    "ewc": {"method": "ewc"},
    "online-ewc": {"method": "online-ewc"},
    "progress-compress": {"method": "progress-compress"},
    "progress-compress+clear": {"method": "progress-compress+clear", "replay_fraction": 0.25},
    "clear-both": {"method": "clear", "pairs": "both"},
    "l2-init+clear": {"method": "l2-init+clear", "replay_fraction": 0.5},
    "clear-forget": {"method": "clear", "replay_fraction": 0.5},
    "trust+clear": {"method": "trust+clear", "replay_fraction": 0.5},
}
"""The settings that distinguish each arm; the names are those of the report."""


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper."""

    paper: str
    about: str
    arms: tuple[str, ...]
    turns_on: tuple[str, ...]
    """The arms that the experiment turns on; at laptop scale these are also run on two real games."""
    probe: bool = False
    suite: Literal["dmlab", "atari"] = "dmlab"
    beyond: bool = False
    """True if it is run on sequences of its own, `BEYOND`, which the paper does not have."""


EXPERIMENTS = {
    "interference": Experiment(
        "Fig. 1",
        "separate, simultaneous and sequential training without CLEAR",
        ("separate", "simultaneous", "sequential"),
        ("separate", "simultaneous", "sequential"),
    ),
    "stability": Experiment(
        "Fig. 2, table",
        "CLEAR on a cyclic sequence, with and without cloning",
        ("separate", "simultaneous", "sequential", "clear", "clear-no-cloning"),
        ("sequential", "clear", "clear-no-cloning", "simultaneous"),
    ),
    "plasticity": Experiment(
        "Fig. 3",
        "a fourth task as probe, early and late in the sequence",
        ("sequential", "clear", "clear-100-replay"),
        (),
        probe=True,
    ),
    "balance": Experiment(
        "Fig. 4",
        "shares of new and replay: 100-0, 75-25, 50-50, 0-100",
        ("sequential", "clear-75-25", "clear", "clear-100-replay"),
        ("sequential", "clear-75-25", "clear", "clear-100-replay"),
    ),
    "buffers": Experiment(
        "Fig. 5",
        "buffers of 1/2, 1/18 and 1/180 of all frames",
        ("sequential", "clear", "clear-buffer-1/18", "clear-buffer-1/180"),
        ("clear", "clear-buffer-1/180"),
    ),
    "comparison": Experiment(
        "Fig. 6, table",
        "baseline, CLEAR 75-25, EWC, online EWC, P&C",
        ("sequential", "clear-75-25", "ewc", "online-ewc", "progress-compress", "progress-compress+clear"),
        ("sequential", "clear-75-25"),
        suite="atari",
    ),
    "streams": Experiment(
        "Section 1",
        "no boundaries: random switches, tasks that fade into each other, a parameter that drifts",
        ("separate", "simultaneous", "sequential", "clear", "l2-init+clear"),
        (),
        beyond=True,
    ),
    "pendulum": Experiment(
        "beyond the paper",
        "continuous actions are learnt: Pendulum-v1 alone",
        ("sequential",),
        (),
        beyond=True,
    ),
    "mujoco": Experiment(
        "beyond the paper",
        "robots of MuJoCo are learnt: HalfCheetah and Reacher, each alone",
        ("sequential",),
        (),
        beyond=True,
    ),
    "control": Experiment(
        "beyond the paper",
        "CLEAR with continuous actions: Pendulum under three control schemes, HalfCheetah in two directions",
        ("simultaneous", "sequential", "clear", "clear-both"),
        (),
        beyond=True,
    ),
    "changed-actions": Experiment(
        "Section 5",
        "controls swapped without a visible sign: old memories hurt; forgetting them by hand, or by distrust",
        ("sequential", "clear", "clear-forget", "trust+clear"),
        (),
        beyond=True,
    ),
}
FORGETS = "clear-forget"
"""The arm that is trained on the first task, forgets it, and goes on."""


@dataclass(frozen=True)
class TaskSequence:
    """A sequence of tasks at some scale: the settings that all arms share, and how many seeds."""

    name: str
    preset: str
    seeds: int
    settings: dict[str, Any] = field(default_factory=dict)
    probe_task: str | None = None
    probe_positions: tuple[int, ...] = ()
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Constants of single arms that were searched for this sequence, on seeds that are not reported."""
    guessed: tuple[str, ...] = ()
    """Settings that the paper leaves open, each with what was taken; `clearl reproduce --dry-run` shows them."""


_TINY = {
    "frames_per_visit": 1_280, "slots": 8, "batch_unrolls": 8, "unroll_steps": 10, "eval_every_frames": 1_280,
    "eval_episodes": 2, "switch_episodes": 2, "eval_max_steps": 200, "record_every_updates": 4, "fisher_batches": 2,
    "compress_frames": 320,
}  # fmt: skip
# Chosen by tools/search_constants.py on seeds of their own, each best inside of its grid; docs/results/search has what
# was tried. In the tenth of a lifetime that may be used for it, neighbours on a grid differ by less than seeds do.
_SEARCHED: dict[str, dict[str, Any]] = {
    "ewc": {"ewc_lambda": 1e3},
    "online-ewc": {"online_ewc_lambda": 75.0},
    "progress-compress": {"online_ewc_lambda": 75.0, "reset_active": False},
}
_SEARCHED["progress-compress+clear"] = _SEARCHED["progress-compress"]
_ONE_CORE = {"runtime": "inline", "learner_threads": 1, "keep_replay": False, "checkpoint_every_frames": 240_000}

SCHEMES = {
    "smoke": TaskSequence(
        "schemes", "minatar-schemes", 1, {**_ONE_CORE, **_TINY, "cycles": 2}, "breakout@3", (0, 3)
    ),
    "laptop": TaskSequence(
        "schemes", "minatar-schemes", 5, {**_ONE_CORE, "cycles": 4, "eval_every_frames": 24_000}, "breakout@3",
        (0, 5, 10), _SEARCHED,
    ),
}  # fmt: skip
GAMES = {
    "laptop": TaskSequence(
        "games", "minatar", 3,
        {**_ONE_CORE, "slots": 32, "tasks": ("breakout", "space_invaders"), "cycles": 2, "frames_per_visit": 700_000,
         "eval_every_frames": 70_000},
    ),
}  # fmt: skip
# A sign of life on the paper's own games: an hour of two cores, one for each run. With IMPALA's optimiser and batch the
# policy is still uniform after so few frames: small batches and Adam make it move. Of the six games these two moved
# most in their first million frames.
ATARI = {
    "laptop": TaskSequence(
        "atari", "impala-atari", 1,
        {**_ONE_CORE, "tasks": ("hero", "ms_pacman"), "cycles": 2, "frames_per_visit": 2_000_000,
         "slots": 8, "batch_unrolls": 8, "optimizer": "adam", "learning_rate": 5e-4, "adam_eps": 1e-5,
         "eval_every_frames": 500_000, "eval_episodes": 10,
         "checkpoint_every_frames": 1_000_000},
    ),
}  # fmt: skip
_GUESSED = (
    "value loss: weight 0.5 on (V - v)^2 as the paper writes it; IMPALA's code has half of that (value_weight 0.25)",
    "actors: 64 slots; the paper gives no number",
    "recurrent state in replay: the stored one; the paper does not list it among what is stored",
)
PAPER = {
    "dmlab": TaskSequence(
        "dmlab", "paper-dmlab", 3, {}, "natlab_varying_map_randomized", (0, 3, 6, 9, 12),
        guessed=(
            "cycles: 5 visits of 60M frames to each level; the paper gives only the total of 900M",
            "reward clipping: [-1, 1]; preset paper-dmlab-soft-clip has DMLab-30's",
            "learning rate 4.8e-4 and entropy weight 0.005: IMPALA sampled them from ranges",
            "probe positions: 0, 3, 6, 9 and 12",
            *_GUESSED,
        ),
    ),
    "atari": TaskSequence(
        "atari", "paper-atari", 3, {},
        guessed=(
            "life loss: does not end an episode; preset paper-atari-life-loss has it",
            "gradient-norm clip: none",
            "EWC's lambda 500 and online EWC's and P&C's 75: the middle of the published ranges, not searched",
            "compress phase of P&C: as long as the visit, on top of it",
            *_GUESSED[:2],
        ),
    ),
}  # fmt: skip


_POLES = "gym:" + ",".join(f"CartPole-v1?length={length}" for length in ("0.25", "0.75", "1.5", "3"))
_STREAMS: dict[str, dict[str, Any]] = {
    "schemes-random": {"protocol": "random"},
    "schemes-overlap": {"protocol": "overlap", "overlap_share": 1.0},
    "schemes-drift": {"protocol": "drift", "drift_shape": "periodic"},
}
_POLE_DRIFT = {"suite": _POLES, "protocol": "drift", "drift_shape": "periodic"}
STREAMS = {
    "smoke": [
        *(TaskSequence(name, "minatar-schemes", 1, {**_ONE_CORE, **_TINY, "cycles": 2, **stream})
          for name, stream in _STREAMS.items()),
        TaskSequence("cartpole-drift", "gym-classic", 1, {**_ONE_CORE, **_TINY, "cycles": 1, **_POLE_DRIFT}),
    ],
    "laptop": [
        *(TaskSequence(name, "minatar-schemes", 5, {**_ONE_CORE, "cycles": 4, "eval_every_frames": 24_000, **stream})
          for name, stream in _STREAMS.items()),
        TaskSequence(
            "cartpole-drift", "gym-classic", 5,
            {**_ONE_CORE, "cycles": 2, "frames_per_visit": 100_000, "eval_every_frames": 20_000, **_POLE_DRIFT},
        ),
    ],
}  # fmt: skip

CONTROL = {
    "smoke": [TaskSequence("control-schemes", "control-schemes", 1, {**_ONE_CORE, **_TINY, "cycles": 2})],
    "laptop": [
        TaskSequence("control-schemes", "control-schemes", 5, _ONE_CORE),
        TaskSequence("directions", "mujoco-directions", 5, _ONE_CORE),
    ],
}
# Reacher's episodes have 50 steps. On seed 100 it ended at -6.8 with this discount, and at -13.5 with 0.98 and an
# initial standard deviation of 0.5.
_REACHER = {"tasks": ("reacher",), "frames_per_visit": 200_000, "discount": 0.9}
MUJOCO = {
    "smoke": [TaskSequence("half-cheetah", "mujoco", 1, {**_ONE_CORE, **_TINY})],
    "laptop": [
        TaskSequence("half-cheetah", "mujoco", 5, _ONE_CORE),
        TaskSequence("reacher", "mujoco", 5, {**_ONE_CORE, **_REACHER}),
    ],
}
PENDULUM = {
    "smoke": [TaskSequence("pendulum", "pendulum", 1, {**_ONE_CORE, **_TINY})],
    "laptop": [TaskSequence("pendulum", "pendulum", 5, _ONE_CORE)],
}
# The same frames and the same game for the eye, with left and right exchanged: the agent sees no sign that its actions
# mean something else now. (In `breakout` and `breakout~1` other actions steer, so that one policy can serve both.) The
# buffer is given in frames, so that a run that goes on after its first half has the same one.
_SWAPPED = {**_ONE_CORE, "tasks": ("breakout~1", "breakout~6"), "cycles": 1, "keep_replay": True}
CHANGED_ACTIONS = {
    "smoke": [TaskSequence("swapped", "minatar-schemes", 1, {**_SWAPPED, **_TINY, "buffer_frames": 1_280})],
    "laptop": [
        TaskSequence(
            "swapped", "minatar-schemes", 5,
            {**_SWAPPED, "frames_per_visit": 120_000, "buffer_frames": 120_000, "eval_every_frames": 12_000},
        ),
    ],
}  # fmt: skip
BEYOND = {
    "streams": STREAMS,
    "pendulum": PENDULUM,
    "mujoco": MUJOCO,
    "control": CONTROL,
    "changed-actions": CHANGED_ACTIONS,
}


def planned_runs(name: str, scale: Scale, seeds: int | None = None) -> list[PlannedRun]:
    """Return every run of one experiment; seed by seed, so that an interrupted experiment has whole comparisons."""
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, EXPERIMENTS)
    experiment = EXPERIMENTS[name]
    runs = []
    for sequence, arms in _sequences(name, scale):
        for seed in range(sequence.seeds if seeds is None else seeds):
            runs += [run for arm in arms for run in _arm_runs(experiment, sequence, arm, seed)]
    return runs


def guesses(name: str, scale: Scale) -> list[str]:
    """List the values that the sequences of an experiment take for settings that the paper leaves open."""
    return [guess for sequence, _ in _sequences(name, scale) for guess in sequence.guessed]


def _sequences(name: str, scale: Scale) -> list[tuple[TaskSequence, Sequence[str]]]:
    experiment = EXPERIMENTS[name]
    if experiment.beyond:
        if scale == "paper":
            raise ConfigError(f"{name} is no experiment of the paper: it has the scales smoke and laptop")
        return [(sequence, experiment.arms) for sequence in BEYOND[name][scale]]
    if scale == "paper":
        arms = [arm for arm in experiment.arms if arm != "progress-compress+clear"]
        return [(PAPER[experiment.suite], arms)]
    chosen: list[tuple[TaskSequence, Sequence[str]]] = [(SCHEMES[scale], experiment.arms)]
    if scale == "laptop" and experiment.turns_on:
        games = ATARI if experiment.suite == "atari" else GAMES
        chosen.append((games[scale], experiment.turns_on))
    return chosen


def _arm_runs(experiment: Experiment, sequence: TaskSequence, arm: str, seed: int) -> list[PlannedRun]:
    settings = {**sequence.settings, **ARMS[arm], **sequence.tuned.get(arm, {}), "seed": seed}
    if not experiment.probe:
        return [PlannedRun(sequence.name, arm, resolve(preset=sequence.preset, flags=settings))]
    tasks = (*resolve(preset=sequence.preset, flags=sequence.settings).tasks, sequence.probe_task)
    probes = [
        {**settings, "protocol": "probe", "tasks": tasks, "probe_task": sequence.probe_task, "probe_position": position}
        for position in sequence.probe_positions
    ]
    return [PlannedRun(sequence.name, arm, resolve(preset=sequence.preset, flags=probe)) for probe in probes]
