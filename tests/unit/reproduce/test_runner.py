"""The runner: finished runs are never repeated, failed ones are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearl.errors import WorkerError
from clearl.reproduce.catalog import PlannedRun, planned_runs
from clearl.reproduce.runner import is_finished, run_all


def a_run(**changes: object) -> PlannedRun:
    from dataclasses import replace

    run = next(run for run in planned_runs("stability", "smoke") if run.arm == "clear")
    return replace(run, config=replace(run.config, cycles=1, **changes))


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    said: list[str] = []
    run = a_run()
    assert run_all([run], tmp_path, jobs=1, say=said.append)
    assert is_finished(tmp_path / run.path)
    metrics = tmp_path / run.path / "metrics.jsonl"
    before = metrics.stat().st_mtime_ns
    assert run_all([run], tmp_path, jobs=1, say=said.append)
    assert metrics.stat().st_mtime_ns == before
    assert said == ["[1/1] schemes/clear/seed-0", "1 of 1 runs are finished already"]


def test_a_failed_run_shows_what_it_said(tmp_path: Path) -> None:
    run = a_run(imports=("no_such_module_of_ours",))
    with pytest.raises(WorkerError, match="no_such_module_of_ours"):
        run_all([run], tmp_path, jobs=1, say=lambda text: None)
    assert not is_finished(tmp_path / run.path)
