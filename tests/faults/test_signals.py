"""Signals to a whole run as terminals and batch systems send them: each run ends in order, with all that it learnt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from fault_runs import ENDLESS, assert_exact, assert_saved_to_the_end
from run_processes import RowCounter, wait_until
from served import hear_ctrl_c
from whole_runs import small_config, start

from clearl.records.run_dir import RunDir

SWEEP = """
title: long
preset: minatar-schemes
settings: {runtime: inline, slots: 4, batch_unrolls: 4, unroll_steps: 10, frames_per_visit: 10_000_000, cycles: 1,
           eval_every_frames: 10_000_000, eval_episodes: 1, eval_max_steps: 20, record_every_updates: 1,
           checkpoint_every_frames: null}
arms: [sequential, clear]
seeds: 1
"""
SAVED_S = 20.0


@pytest.mark.parametrize("runtime", ["local", "inline"])
def test_a_terminal_that_closes_sends_two_signals_and_nothing_is_lost(runtime: str, tmp_path: Path) -> None:
    config = small_config(**{**vars(ENDLESS), "runtime": runtime, "checkpoint_every_frames": None})
    process, written = start(config, tmp_path), RowCounter(tmp_path)
    wait_until(process, lambda: len(written.rows("train")) > 5)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGHUP)
    process.join(0.02)
    if process.is_alive():
        os.kill(process.pid, signal.SIGHUP)
    process.join(SAVED_S)
    assert process.exitcode == 0 and RunDir.open(tmp_path).status == "interrupted"
    assert_saved_to_the_end(tmp_path)
    if runtime == "local":
        assert_exact(tmp_path, config)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_sweep_that_is_ended_ends_its_runs_with_all_that_they_learnt(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C and a closed terminal reach the whole foreground group; SIGKILL reaches the leader only."""
    file, out = tmp_path / "long.yaml", tmp_path / "out"
    file.write_text(SWEEP)
    runs = [out / "runs" / "long" / arm / "seed-0" for arm in ("sequential", "clear")]
    command = [sys.executable, "-m", "clearl", "sweep", str(file), "--out", str(out), "--jobs", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env=environment, start_new_session=True, preexec_fn=hear_terminal
    ) as leader:
        written = [RowCounter(run) for run in runs]
        while not all(len(each.rows("train")) > 5 for each in written):
            assert leader.poll() is None
            with suppress(subprocess.TimeoutExpired):
                leader.wait(0.05)
        if number == signal.SIGKILL:
            leader.kill()
        else:
            os.killpg(leader.pid, number)
        assert leader.wait(SAVED_S) == (-number if number == signal.SIGKILL else 130)
    deadline = time.monotonic() + SAVED_S
    while any(RunDir.open(run).status == "running" for run in runs) and time.monotonic() < deadline:
        os.sched_yield()
    for run in runs:
        assert RunDir.open(run).status == "interrupted"
        assert_saved_to_the_end(run)


def hear_terminal() -> None:
    """Undo what a shell or nohup make of the tests' signals."""
    hear_ctrl_c()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
