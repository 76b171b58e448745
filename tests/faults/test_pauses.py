"""SIGSTOP, as `docker pause`, SLURM's suspend and the freezer do it: of all processes, the learner's, or a worker's."""

from __future__ import annotations

import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from fault_runs import ENDLESS, Record, assert_exact, stop
from run_processes import RowCounter, children, wait_until
from whole_runs import rows, small_config, start

from clearl.config import RunConfig

TIMEOUT_S = 2.0


def config_of(timeout_s: float) -> RunConfig:
    return small_config(**{**vars(ENDLESS), "worker_timeout_s": timeout_s, "eval_every_frames": 5000})


def pause(process: BaseProcess, pids: list[int], seconds: float) -> None:
    """Stop these processes for a while. The learner's comes first and goes on last, as a freezer may do it."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    process.join(seconds)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)


def pause_often(out: Path, record: Record, whom: str, *, pauses: int, timeout_s: float) -> None:
    """A pause of all processes for twice the timeout is no fault, and nothing is lost."""
    config, written = config_of(timeout_s), RowCounter(out)
    process = start(config, out)
    wait_until(process, lambda: written.rows("eval") and len(written.rows("train")) > 5)
    assert process.pid is not None
    for _ in range(pauses):
        family = [process.pid, *children(process.pid).values()]
        assert len(family) == 4, "two workers and the evaluator"
        pause(process, family if whom == "all" else [process.pid], 2 * timeout_s)
        before = len(written.rows("train"))
        wait_until(process, lambda n=before: len(written.rows("train")) > n + 5)
    stop(process, out)
    record("pauses", f"{whom} stopped {pauses} times for {2 * timeout_s:g} s with worker_timeout_s {timeout_s:g}")
    assert not rows(out, "fault") and not rows(out, "restart")
    assert_exact(out, config)


@pytest.mark.parametrize("whom", ["all", "the learner"])
def test_a_pause_longer_than_the_timeout_is_no_fault(whom: str, tmp_path: Path, record_property: Record) -> None:
    pause_often(tmp_path, record_property, whom, pauses=2, timeout_s=TIMEOUT_S)


@pytest.mark.faults
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("whom", ["all", "the learner"])
def test_many_pauses_longer_than_the_timeout(whom: str, tmp_path: Path, record_property: Record) -> None:
    pause_often(tmp_path, record_property, whom, pauses=10, timeout_s=3.0)


def stop_worker(out: Path, record: Record, *, stops: int, slack_s: float, timeout_s: float) -> None:
    """Stop one worker: a short pause is ignored, a long one is a fault of that worker."""
    config = config_of(timeout_s)
    process, written, waits = start(config, out), RowCounter(out), []
    wait_until(process, lambda: len(written.rows("train")) > 5)
    assert process.pid is not None
    for number in range(stops):
        pause(process, [children(process.pid)[f"worker-{number % 2}"]], timeout_s / 4)
        os.kill(children(process.pid)[f"worker-{number % 2}"], signal.SIGSTOP)
        waits.append(wait_until(process, lambda n=number: len(written.rows("fault")) > n))
        wait_until(process, lambda n=number: len(written.rows("restart")) > n)
    stop(process, out)
    record("stops", f"{stops}, named after {max(waits):.2f} s at the most, with worker_timeout_s {timeout_s:g}")
    for number, row in enumerate(rows(out, "fault")):
        assert row["worker"] == f"worker-{number % 2}" and f"said nothing for {timeout_s:g} s" in row["problem"]
    assert_exact(out, config)
    assert max(waits) <= timeout_s + slack_s


def test_a_stopped_worker_is_named_and_replaced(tmp_path: Path, record_property: Record) -> None:
    stop_worker(tmp_path, record_property, stops=1, slack_s=5, timeout_s=TIMEOUT_S)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_stopped_workers_are_named_and_replaced_in_time(tmp_path: Path, record_property: Record) -> None:
    stop_worker(tmp_path, record_property, stops=4, slack_s=1, timeout_s=3.0)
