"""The runner: finished runs are never repeated, failed ones are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearl.errors import RunDirectoryError, WorkerError
from clearl.reproduce.catalog import planned_runs
from clearl.reproduce.planned import PlannedRun
from clearl.reproduce.runner import Status, default_jobs, is_finished, run_all


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


def test_a_finished_run_of_other_settings_is_not_taken_for_the_planned_one(tmp_path: Path) -> None:
    assert run_all([a_run()], tmp_path, jobs=1, say=lambda text: None)
    assert run_all([a_run(eval_episodes=3)], tmp_path, jobs=1, say=lambda text: None)  # does not touch learning
    with pytest.raises(RunDirectoryError, match=r"seed-0 holds .* \(entropy_weight: 0\.03 there, 0\.5 planned\)"):
        run_all([a_run(entropy_weight=0.5)], tmp_path, jobs=1, say=lambda text: None)


@pytest.mark.parametrize(
    ("changes", "cores", "jobs"),
    [
        ({"runtime": "inline"}, 16, 16),
        ({"runtime": "inline"}, 1, 1),
        ({"runtime": "local", "slots": 64}, 16, 3),  # a learner and four workers
        ({"runtime": "local", "slots": 64}, 2, 1),
        ({"runtime": "local", "slots": 64, "workers": 7}, 16, 2),
    ],
)
def test_by_default_each_process_of_a_run_has_a_core(changes: dict[str, object], cores: int, jobs: int) -> None:
    assert default_jobs([a_run(runtime="inline"), a_run(**changes)], cores) == jobs


def test_a_failed_run_shows_what_it_said(tmp_path: Path) -> None:
    run = a_run(imports=("no_such_module_of_ours",))
    with pytest.raises(WorkerError, match="no_such_module_of_ours"):
        run_all([run], tmp_path, jobs=1, say=lambda text: None)
    assert not is_finished(tmp_path / run.path)


def test_a_failed_run_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    bad, good = a_run(imports=("no_such_module_of_ours",), seed=1), a_run()
    with pytest.raises(WorkerError, match="1 runs failed; .*seed-1"):
        run_all([bad, good], tmp_path, jobs=1, say=lambda text: None)
    assert is_finished(tmp_path / good.path)
    assert (tmp_path / "status.txt").read_text() == "1 of 2 runs finished\n"


def test_the_status_names_what_runs_how_far_it_is_and_what_comes_next(tmp_path: Path) -> None:
    one, two = a_run(), a_run(seed=1)
    metrics = tmp_path / one.path / "metrics.jsonl"
    metrics.parent.mkdir(parents=True)
    metrics.write_text('{"kind":"train","frames":960}\n{"kind":"train","frames":1920}\n')
    line = Status(tmp_path, total=5, done=3).line([one], [two])
    assert line == "3 of 5 runs finished; running schemes/clear/seed-0 (50%); next schemes/clear/seed-1"
