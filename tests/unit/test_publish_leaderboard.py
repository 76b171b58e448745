"""The shipped leaderboard is of the archived rows, with every column of `clearl leaderboard`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tools are no part of the package
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))  # they import each other as scripts do


from tools import publish_leaderboard as board
from tools.archive_runs import pack, unpack

from clearl.report.leaderboard import COLUMNS
from clearl.reproduce.sweep import load_sweep

ROOT = Path(__file__).parents[2]


def test_the_shipped_page_is_that_of_the_archived_rows_with_every_column(tmp_path: Path) -> None:
    board.publish(board.ARCHIVES, tmp_path)
    for name in ("leaderboard.md", "leaderboard.json"):
        assert (tmp_path / name).read_text("utf-8") == (board.RESULTS / name).read_text("utf-8")
    rows = json.loads((tmp_path / "leaderboard.json").read_text("utf-8"))
    measured = {name for row in rows for name in COLUMNS if row[name] is not None and row[name]["low"] is not None}
    assert measured == set(COLUMNS), "each number with its interval"


def test_only_sweep_files_that_ship_are_ranked_and_none_that_chose_constants() -> None:
    for name in board.EXPERIMENTS:
        runs = load_sweep(ROOT / "experiments" / f"{name}.yaml").runs
        assert all(run.config.seed < 100 for run in runs), "seeds from 100 on are for choosing"


def test_an_experiment_that_has_not_finished_is_not_ranked(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    name, out = "e4-short", tmp_path / "out"
    unpack(tmp_path / "all", board.ARCHIVES / f"{name}.tar.xz")
    pack(tmp_path / "all", tmp_path / "rows" / f"{name}.tar.xz", name)
    assert board.unpack_finished(tmp_path / "rows", out) == [name] and list((out / "runs").iterdir())
    shutil.rmtree(next((tmp_path / "all" / "runs" / name).glob("*/seed-0")))
    pack(tmp_path / "all", tmp_path / "rows" / f"{name}.tar.xz", name)
    shutil.rmtree(out)
    assert board.unpack_finished(tmp_path / "rows", out) == [] and not list((out / "runs").iterdir())


def test_a_short_form_is_not_ranked_beside_its_longer_one(tmp_path: Path) -> None:
    names = board.unpack_finished(board.ARCHIVES, tmp_path)
    assert "e4-visits" in names and "e4-short" not in names
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted(names)
    assert {*board.LONGER} | {longer for forms in board.LONGER.values() for longer in forms} <= {*board.EXPERIMENTS}


RUNS = {"e1/a/seed-0": "seed: 0", "e3/a/seed-0": "seed: 0\ndrift_applied: reset", "e3/a/seed-1": "seed: 1"}
"""The second spells out the default of a setting that is newer than the first."""


def test_a_run_that_two_experiments_share_is_ranked_once(tmp_path: Path) -> None:
    for run, settings in RUNS.items():
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "config.yaml").write_text(settings)
    board.drop_repeated(tmp_path, ["e1", "e3"])
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*/*")) == [
        "e1/a/seed-0",
        "e3/a/seed-1",
    ]
