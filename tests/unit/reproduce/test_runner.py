"""The runner: finished runs are never repeated, failed ones are shown."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from clearl.errors import RunDirectoryError, WorkerError
from clearl.reproduce import runner
from clearl.reproduce.catalog import planned_runs
from clearl.reproduce.planned import PlannedRun
from clearl.reproduce.runner import Status, default_jobs, is_finished, run_all
from clearl.runtimes.host import StopFlag


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
    with pytest.raises(WorkerError, match="1 run failed; .*seed-1"):
        run_all([bad, good], tmp_path, jobs=1, say=lambda text: None)
    assert is_finished(tmp_path / good.path)
    assert (tmp_path / "status.txt").read_text() == "1 of 2 runs finished\n"


def our_children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE}


def test_an_error_of_the_runner_leaves_no_job_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, before = list[set[int]](), our_children()

    def write_but_once(runs: Sequence[PlannedRun], out: Path) -> None:
        begun.append(our_children() - before)
        if len(begun) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(out))
        write_configs(runs, out)

    write_configs = runner.write_configs
    monkeypatch.setattr(runner, "write_configs", write_but_once)
    with pytest.raises(OSError, match="No space left"):
        run_all([a_run(frames_per_visit=10**8), a_run(seed=1)], tmp_path, jobs=2, say=lambda text: None)
    assert len(begun[1]) == 1 and not our_children() & begun[1], "the first job ran, and has been ended"


def test_a_status_that_cannot_be_written_keeps_no_run_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Status, "write", full)
    assert run_all([a_run()], tmp_path, jobs=1, say=lambda text: None)
    assert capsys.readouterr().err.count("status.txt is switched off") == 1


def job_of(commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> runner._Job:
    monkeypatch.setattr(runner, "_commands", lambda *_: [list(command) for command in commands])
    return runner._Job(a_run(), tmp_path)


def wait_for(job: runner._Job, stop: StopFlag) -> None:
    while not job.has_ended(stop):
        job.wait()


def test_a_job_of_several_commands_runs_one_after_the_other_and_ends_with_the_first_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    year = ["calendar", "2020", "1"]
    whole = job_of([year, year], tmp_path, monkeypatch)
    wait_for(whole, StopFlag())
    assert whole.succeeded and whole.log.read_text().count("January 2020") == 2
    failing = job_of([["no_such_module_of_ours"], ["calendar", "2021", "1"]], tmp_path, monkeypatch)
    wait_for(failing, StopFlag())
    assert not failing.succeeded and "January 2021" not in failing.log.read_text()


def test_a_job_that_is_asked_to_stop_ends_its_command_and_begins_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, stop = our_children(), StopFlag()
    job = job_of([["http.server", "0", "--bind", "127.0.0.1"], ["calendar", "2020", "1"]], tmp_path, monkeypatch)
    assert our_children() - before
    stop.signal = signal.SIGTERM
    job.stop()
    wait_for(job, stop)
    assert not job.succeeded and not our_children() - before and "January" not in job.log.read_text()


def test_a_job_is_asked_once_as_a_second_signal_would_cost_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, asked = job_of([["http.server", "0", "--bind", "127.0.0.1"]], tmp_path, monkeypatch), list[str]()
    monkeypatch.setattr(job._process, "terminate", lambda: asked.append("SIGTERM"))
    job.stop()
    job.stop()
    assert asked == ["SIGTERM"]
    assert os.getpgid(job._process.pid) == job._process.pid, "Ctrl-C at the terminal does not reach it"
    job._process.kill()
    job.wait()


def test_the_status_names_what_runs_how_far_it_is_and_what_comes_next(tmp_path: Path) -> None:
    one, two = a_run(), a_run(seed=1)
    metrics = tmp_path / one.path / "metrics.jsonl"
    metrics.parent.mkdir(parents=True)
    metrics.write_text('{"kind":"train","frames":960}\n{"kind":"train","frames":1920}\n')
    line = Status(tmp_path, total=5, done=3).line([one], [two])
    assert line == "3 of 5 runs finished; running schemes/clear/seed-0 (50%); next schemes/clear/seed-1"
