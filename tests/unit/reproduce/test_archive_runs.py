"""Rows of finished runs travel in an archive; a sweep on another machine does not repeat them."""

from __future__ import annotations

import json
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))  # tools are no part of the package

from tools import archive_runs

from clearl.records.run_dir import META_FILE
from clearl.records.schema import seal, unseal
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


def test_no_path_of_the_machine_gets_into_an_archive(tmp_path: Path) -> None:
    run, out, archive = short_runs()[-1], tmp_path / "out", tmp_path / "rows.tar.xz"
    assert run_all([run], out, jobs=1, say=lambda text: None)
    meta = out / run.path / META_FILE
    assert str(tmp_path) in meta.read_text()
    assert archive_runs.pack(out, archive, "schemes") == 1
    with tarfile.open(archive) as tar:
        files = [tar.extractfile(entry) for entry in tar]
        assert files and not any(file is None or str(tmp_path).encode() in file.read() for file in files)
    assert archive_runs.unpack(tmp_path / "there", archive) == 1
    assert is_finished(tmp_path / "there" / run.path)

    values = unseal(meta.read_bytes())
    meta.write_bytes(seal(json.dumps(values | {"argv": [*values["argv"], "/elsewhere/preset.yaml"]})))
    with pytest.raises(SystemExit, match="/elsewhere/preset.yaml, which is not below"):
        archive_runs.pack(out, archive, "schemes")
