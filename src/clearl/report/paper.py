"""The paper's own numbers (its two tables): final cumulative performance, mean over three runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper. Its tasks and budgets are not those of the runs beside it unless the suite is the same."""

    suite: str
    title: str
    tasks: tuple[str, ...]
    scores: dict[str, tuple[float, ...]]
    """Arm to one score a task."""
    names: dict[str, str]
    """Arm to the paper's own words for it."""


DMLAB = PaperTable(
    suite="dmlab",
    title="DMLab, 900M frames",
    tasks=("explore_object_locations_small", "rooms_collect_good_objects_train", "rooms_keys_doors_puzzle"),
    scores={
        "separate": (29.24, 8.79, 19.91),
        "simultaneous": (32.35, 8.81, 20.56),
        "sequential": (17.99, 5.01, 10.87),
        "clear": (31.40, 8.00, 18.13),
        "clear-no-cloning": (28.66, 7.79, 16.63),
        "clear-75-25": (30.28, 7.83, 17.86),
        "clear-100-replay": (31.09, 7.48, 13.39),
        "clear-buffer-1/180": (30.33, 8.00, 18.07),
        "clear-buffer-1/18": (30.82, 7.99, 18.21),
    },
    names={
        "separate": "Separate",
        "simultaneous": "Simultaneous",
        "sequential": "Sequential (no CLEAR)",
        "clear": "CLEAR (50-50 new-replay)",
        "clear-no-cloning": "CLEAR w/o behavioral cloning",
        "clear-75-25": "CLEAR, 75-25 new-replay",
        "clear-100-replay": "CLEAR, 100% replay",
        "clear-buffer-1/180": "CLEAR, buffer 5M",
        "clear-buffer-1/18": "CLEAR, buffer 50M",
    },
)

ATARI = PaperTable(
    suite="atari",
    title="Atari, 5 visits of 50M frames to each game",
    tasks=("space_invaders", "krull", "beam_rider", "hero", "star_gunner", "ms_pacman"),
    scores={
        "sequential": (346.47, 5512.36, 952.72, 2737.32, 1065.20, 753.83),
        "clear-75-25": (426.72, 8845.12, 585.05, 8106.22, 991.74, 1222.82),
        "ewc": (549.22, 5352.92, 432.78, 4499.35, 704.20, 639.75),
        "progress-compress": (455.34, 7025.40, 743.38, 3433.10, 1261.86, 924.52),
    },
    names={"sequential": "Baseline", "clear-75-25": "CLEAR", "ewc": "EWC", "progress-compress": "P&C"},
)

TABLES = (DMLAB, ATARI)
