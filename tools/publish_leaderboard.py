"""Write docs/results/leaderboard.md and .json from the archived rows of the published experiments.

    python tools/publish_leaderboard.py

The page is the one of `clearl leaderboard` with a note on its runs. Sweeps that chose constants are left out, and
so are those that have not finished: seeds of which some are missing are no sample of what was planned.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from archive_runs import ARCHIVES, unpack

from clearl.config import RunConfig, from_yaml
from clearl.records.run_dir import CONFIG_FILE
from clearl.report import make_leaderboard
from clearl.reproduce.sweep import load_sweep

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
SWEEPS = Path(__file__).resolve().parent.parent / "experiments"
EXPERIMENTS = (
    "e1-schemes", "e2-short", "e2-games", "e3-schemes", "e3-rivals", "e4-short", "e4-visits", "e4-recurrent", "e5-doom",
    "e6-atari",
)  # fmt: skip
"""Experiments whose runs are ranked once their rows are archived."""
LONGER = {"e2-short": ("e2-games",), "e4-short": ("e4-visits", "e4-recurrent"), "e4-visits": ("e4-recurrent",)}
"""Longer forms of an experiment: once one has finished, the shorter form is no longer ranked."""
COMMAND = "clearl leaderboard runs/evidence/runs --out leaderboard"
NOTE = """
The runs are those of {names}, whose rows ship in `experiments/rows` ([Results](README.md) has the conditions).
They shared the machine with other work: frames/s are no measure of speed ([Performance](../performance.md)).
"""


def unpack_finished(archives: Path, out: Path) -> list[str]:
    """Unpack the rows of the experiments that have finished; return their names."""
    names = []
    for name in EXPERIMENTS:
        archive = archives / f"{name}.tar.xz"
        if archive.is_file() and unpack(out, archive) < len(load_sweep(SWEEPS / f"{name}.yaml").runs):
            shutil.rmtree(out / "runs" / name)
        elif archive.is_file():
            names.append(name)
    for name in [name for name in names if not {*LONGER.get(name, ())}.isdisjoint(names)]:
        shutil.rmtree(out / "runs" / name)
        names.remove(name)
    return names


def publish(archives: Path, results: Path) -> None:
    """Unpack the rows, rank them, and write page and numbers."""
    with tempfile.TemporaryDirectory() as place:
        runs, board = Path(place, "evidence"), Path(place, "board")
        names = unpack_finished(archives, runs)
        drop_repeated(runs / "runs", names)
        make_leaderboard([runs], board, command=COMMAND)
        listed = ", ".join(f"`{name}`" for name in names)
        page = (board / "leaderboard.md").read_text(encoding="utf-8")
        head, made, boards = page.partition(f"Made by `{COMMAND}`.\n")
        head = head.replace("docs/metrics.md", "[Metrics](../metrics.md)")
        (results / "leaderboard.md").write_text(head + made + NOTE.format(names=listed) + boards, encoding="utf-8")
        (results / "leaderboard.json").write_bytes((board / "leaderboard.json").read_bytes())
    found = json.loads((results / "leaderboard.json").read_text(encoding="utf-8"))
    print(f"leaderboard: {len(found)} rows from {', '.join(names)}")


def drop_repeated(runs: Path, names: Sequence[str]) -> None:
    """Remove runs with the settings and the seed of one of an earlier experiment: they are the same run."""
    seen: list[RunConfig] = []
    for name in names:
        for file in sorted((runs / name).glob(f"*/*/{CONFIG_FILE}")):
            config = from_yaml(file.read_text(encoding="utf-8"))  # an older file lacks newer settings
            if config in seen:
                shutil.rmtree(file.parent)
            seen.append(config)


if __name__ == "__main__":
    publish(ARCHIVES, RESULTS)
