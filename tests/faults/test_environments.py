from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fault_runs import Record, run_with_faults
from whole_runs import rows

from clearl.acting.worker import Worker
from clearl.errors import WorkerError
from clearl.records.reader import scan_rows
from clearl.records.run_dir import RunDir
from clearl.records.schema import Row
from clearl.runtimes.supervision import REBUILT

REBUILT_AFTER = {
    "raise": "the motor is on fire", "nan": "the observation holds NaN or infinity", "inf": "reward",
    "shape": "shape (4,)", "exit": "step raised SystemExit: 0",
}  # fmt: skip
RESTARTED_AFTER = {
    "abort": "was killed by SIGABRT", "exit-at-once": "exited with code 0 while it worked on Faulty-v0",
}  # fmt: skip


def test_an_environment_that_fails_is_built_anew_and_its_worker_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_with_faults(tmp_path, monkeypatch, list(REBUILT_AFTER))
    for row, told in zip(rows(tmp_path / "run", "fault"), REBUILT_AFTER.values(), strict=True):
        assert "environment of task 'Faulty-v0', slot " in row["problem"] and told in row["problem"]
        assert row["problem"].endswith(REBUILT) and row["worker"].startswith("worker-")
    assert not rows(tmp_path / "run", "restart")


def test_an_environment_that_ends_its_process_costs_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with_faults(tmp_path, monkeypatch, list(RESTARTED_AFTER))
    for row, told in zip(rows(tmp_path / "run", "fault"), RESTARTED_AFTER.values(), strict=True):
        assert told in row["problem"] and row["worker"].startswith("worker-")
    assert len(rows(tmp_path / "run", "restart")) == len(RESTARTED_AFTER)


def test_what_a_worker_had_told_of_but_not_inserted_when_it_died_is_in_the_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner may have trained on it: `assert_exact` finds it missing if the next process does not insert it."""
    monkeypatch.setattr(Worker, "remember", Worker.remember)  # the command imports `faulty_memory` too: put it back
    names = ["die-before", "die-within"] * 3
    run_with_faults(tmp_path, monkeypatch, names, imports=("faulty_envs", "faulty_memory"), buffer_frames=10**6)
    assert [row["problem"] for row in rows(tmp_path / "run", "fault")] == ["was killed by SIGKILL"] * len(names)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_an_environment_that_hangs_is_named_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    run_with_faults(tmp_path, monkeypatch, ["hang", "hang"])
    restarts = scan_rows(tmp_path / "run" / "metrics.jsonl").rows
    waits = [row["after_s"] for row in restarts if row["kind"] == "restart"]
    record_property("hangs", f"2, replaced within {max(waits):.2f} s of being named, with worker_timeout_s 3")
    assert [row["problem"] for row in rows(tmp_path / "run", "fault")] == [
        "said nothing for 3 s (worker_timeout_s) and was killed"
    ] * 2
    assert max(waits) <= 5


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_an_environment_that_keeps_failing_stops_the_run_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorkerError, match="more than 5 times in 10 minutes") as caught:
        run_with_faults(tmp_path, monkeypatch, ["raise"] * 20, workers=1)
    assert 'raise RuntimeError("the motor is on fire")' in str(caught.value)
    assert len(rows(tmp_path / "run", "fault")) == 6 and RunDir.open(tmp_path / "run").status == "failed"


def hang_evaluations(
    tmp_path: Path, patch: pytest.MonkeyPatch, record: Record, *, hangs: int, timeout_s: float, slack_s: float
) -> None:
    """An environment that hangs in an evaluation is found as soon as one that hangs in training."""
    found_s: list[float] = []

    def note(row: Row) -> None:
        if row["kind"] == "fault":
            found_s.append(time.time() - os.stat(tmp_path / "hang-evaluation.taken").st_ctime)

    names = ["hang-evaluation"] * hangs
    run_with_faults(tmp_path, patch, names, [note], eval_every_frames=200, worker_timeout_s=timeout_s)
    record("evaluations that hang", f"{hangs}, found after {max(found_s):.2f} s, with worker_timeout_s {timeout_s:g}")
    faults = rows(tmp_path / "run", "fault")
    assert {row["worker"] for row in faults} == {"evaluator"}
    assert [row["problem"] for row in faults] == [
        f"said nothing for {timeout_s:g} s (worker_timeout_s) and was killed"
    ] * hangs
    assert max(found_s) <= timeout_s + slack_s


def test_an_evaluation_that_hangs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    hang_evaluations(tmp_path, monkeypatch, record_property, hangs=1, timeout_s=2.0, slack_s=4)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_evaluations_that_hang_are_found_within_a_second_of_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    hang_evaluations(tmp_path, monkeypatch, record_property, hangs=4, timeout_s=3.0, slack_s=1)
