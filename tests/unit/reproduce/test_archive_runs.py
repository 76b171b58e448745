"""Rows of finished runs travel in an archive; a sweep on another machine does not repeat them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))  # tools are no part of the package

from tools import archive_runs

from clearl.records.table import MetricsTable
from clearl.reproduce.catalog import planned_runs
from clearl.reproduce.planned import PlannedRun
from clearl.reproduce.runner import is_finished, run_all


def short_runs() -> list[PlannedRun]:
    runs = [run for run in planned_runs("stability", "smoke") if run.arm in ("clear", "separate")]
    return [replace(run, config=replace(run.config, cycles=1)) for run in runs]


def test_unpacked_runs_count_as_finished_and_keep_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here, there, runs = Path("here"), Path("there"), short_runs()
    assert run_all(runs, here, jobs=2, say=lambda text: None)
    archive = Path("rows.tar.xz")
    assert archive_runs.pack(here, archive, "schemes") == 2
    before = archive.read_bytes()
    assert archive_runs.pack(here, archive, "schemes") == 2
    assert archive.read_bytes() == before

    assert archive_runs.unpack(there, archive) == 2
    said: list[str] = []
    assert run_all(runs, there, jobs=2, say=said.append)
    assert said == ["2 of 2 runs are finished already"]
    for run in runs:
        assert is_finished(there / run.path)
        assert list(MetricsTable.read(there / run.path)) == list(MetricsTable.read(here / run.path))
    assert not list(there.rglob("checkpoints"))
    assert archive_runs.unpack(there, archive) == 0


def test_paths_of_the_machine_are_refused(tmp_path: Path) -> None:
    run = short_runs()[-1]
    assert run_all([run], tmp_path / "out", jobs=1, say=lambda text: None)
    with pytest.raises(SystemExit, match="run the sweep with a relative --out"):
        archive_runs.pack(tmp_path / "out", tmp_path / "rows.tar.xz", "schemes")
