"""A child or an environment that fails for good ends the run, but takes nothing with it of what was learnt."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fault_runs import ENDLESS, assert_exact, assert_saved_to_the_end, faulty_config
from run_processes import children
from whole_runs import rows, small_config, state

from clearl.errors import ClearlError, EnvironmentFaultError, WorkerError
from clearl.experiment import run
from clearl.records.run_dir import RunDir
from clearl.records.schema import Row
from clearl.runtimes.supervision import REBUILT

UNSAVED: dict[str, Any] = {"checkpoint_every_frames": None, "fault_budget": 1, "restart_backoff_s": 0.01}
RUNTIMES = pytest.mark.parametrize("runtime", ["inline", "local"])


class Strike:
    """Breaks all environments for good after some updates; first of all the run is told to stop, if `stop` says so."""

    def __init__(self, directory: Path, *, updates: int = 10, stop: bool = False) -> None:
        self._order, self._updates, self._stop = directory / "always", updates, stop

    def __call__(self, row: Row) -> None:
        if row["kind"] == "train" and row["updates"] == self._updates:
            self._order.touch()
            if self._stop:
                os.kill(os.getpid(), signal.SIGTERM)


def assert_noted(error: ClearlError, out: Path) -> None:
    saved = assert_saved_to_the_end(out)
    assert error.__notes__ == [f"the newest checkpoint is of frame {saved:,}; the same command goes on from there"]
    assert RunDir.open(out).status == "failed"


@RUNTIMES
def test_environments_that_fail_for_good_cost_nothing_that_was_learnt(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTS", str(tmp_path))
    config, out = faulty_config(runtime=runtime, **UNSAVED), tmp_path / "run"
    with pytest.raises((EnvironmentFaultError, WorkerError), match="the motor is on fire") as caught:
        run(config, out, console=False, listeners=[Strike(tmp_path)])
    assert_noted(caught.value, out)
    assert_exact(out, config)
    (tmp_path / "always").unlink()
    trained = len(rows(out, "train"))
    assert run(config, out, console=False, listeners=[Strike(tmp_path, updates=trained + 5, stop=True)]).path == out
    assert [row["updates"] for row in rows(out, "train")][: trained + 5] == list(range(1, trained + 6))


@RUNTIMES
def test_a_run_that_is_told_to_stop_while_its_environments_fail_ends_in_order(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch systems signal the whole job, games included: the run is told by the environment that fails next."""
    monkeypatch.setenv("FAULTS", str(tmp_path))
    config, out = faulty_config(runtime=runtime, workers=1, **UNSAVED), tmp_path / "run"
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def strike(row: Row) -> None:
        if row["kind"] == "fault" and row["problem"].endswith(REBUILT):  # all that the budget allows for
            (tmp_path / "told").write_text(str(os.getpid()))
            (tmp_path / "told").rename(tmp_path / "always")
        elif row["kind"] == "train" and row["updates"] == 10:
            (tmp_path / "raise").touch()

    try:
        assert run(config, out, console=False, listeners=[strike]).status == "interrupted"
    finally:
        signal.signal(signal.SIGHUP, before)
    assert_saved_to_the_end(out)
    assert_exact(out, config)


def test_an_evaluator_that_is_killed_over_and_over_ends_the_run_with_all_that_it_learnt(tmp_path: Path) -> None:
    config = small_config(**{**vars(ENDLESS), **UNSAVED, "eval_episodes": 64})
    killed = list[int]()

    def strike(row: Row) -> None:
        pid = children(os.getpid()).get("evaluator")
        if row["kind"] == "train" and row["updates"] > 5 and pid is not None and pid not in killed:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    with pytest.raises(WorkerError, match="evaluator failed more than 1 times .*: was killed by SIGKILL") as caught:
        run(config, tmp_path, console=False, listeners=[strike])
    assert len(killed) == 2
    assert_noted(caught.value, tmp_path)
    assert_exact(tmp_path, config)


@RUNTIMES
def test_a_last_evaluation_that_fails_is_made_again_and_costs_no_training(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTS", str(tmp_path))
    settings = {**UNSAVED, "frames_per_visit": 640, "cycles": 1, "eval_every_frames": 640}
    config, out = faulty_config(runtime=runtime, **settings), tmp_path / "run"
    with pytest.raises((EnvironmentFaultError, WorkerError)) as caught:
        run(config, out, console=False, listeners=[Strike(tmp_path, updates=640 // 32)])
    assert_noted(caught.value, out)
    assert state(out)["learner"]["state"]["counters"]["frames"] == 640
    (tmp_path / "always").unlink()
    assert run(config, out, console=False).status == "finished"
    assert [row["frames"] for row in rows(out, "train")] == list(range(32, 641, 32))
    assert rows(out, "eval")[-1]["frames"] == 640


@RUNTIMES
def test_a_checkpoint_of_all_frames_is_there_before_the_last_evaluation(runtime: str, tmp_path: Path) -> None:
    """It may take an hour, in which the run may be killed."""
    settings = {"frames_per_visit": 640, "cycles": 1, "eval_every_frames": 10**6, "checkpoint_every_frames": None}
    config, frames = small_config(**{**vars(ENDLESS), **settings, "runtime": runtime}), list[int]()

    def look(row: Row) -> None:
        if row["kind"] == "eval" and row["frames"] == 1280:
            frames.append(state(tmp_path)["learner"]["state"]["counters"]["frames"])

    run(config, tmp_path, console=False, listeners=[look])
    assert frames and set(frames) == {1280}
