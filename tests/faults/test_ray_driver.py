"""Signals to the process that leads a run with the Ray runtime, and what is left of its family afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from run_processes import RowCounter, alive
from whole_runs import small_config, state

from clearl.config import to_yaml
from clearl.records.run_dir import RunDir

ENDLESS = small_config(
    runtime="ray", workers=2, frames_per_visit=10**8, batch_unrolls=4, buffer_frames=4000, eval_every_frames=10**8,
    checkpoint_every_frames=1000, record_every_updates=1,
)  # fmt: skip
STOP_S, GONE_S = 10.0, 10.0
INTERRUPTED = 130
Record = Callable[[str, object], None]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`clearl run --out RUN` as in a terminal of its own, once it has learnt something."""
    (tmp_path / "settings.yaml").write_text(to_yaml(ENDLESS))
    arguments = ["--config", str(tmp_path / "settings.yaml"), "--out", str(tmp_path / "run")]
    command, written = [sys.executable, "-m", "clearl", "run", *arguments], RowCounter(tmp_path / "run")
    deadline = time.monotonic() + 300
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as made:
        try:
            while len(written.rows("train")) < 60:
                assert made.poll() is None and time.monotonic() < deadline, "no progress"
                with suppress(subprocess.TimeoutExpired):
                    made.wait(0.1)
            yield made
        finally:
            made.kill()


def family(process: subprocess.Popen[bytes]) -> list[int]:
    """The learner, workers and evaluators; Ray names an actor's process after its class."""
    children = psutil.Process(process.pid).children(recursive=True)
    titles = {child.pid: " ".join(child.cmdline()) for child in children}
    ours = [[pid for pid, title in titles.items() if f"ray::{kind}" in title] for kind in ("Learner", "Child")]
    assert [len(pids) for pids in ours] == [1, 4], titles
    return ours[0] + ours[1]


def seconds_until_gone(pids: list[int]) -> float:
    begun = time.monotonic()
    while left := alive(pids):
        assert time.monotonic() - begun < GONE_S, f"{left} are left"
    return time.monotonic() - begun


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leads_to_a_checkpoint_and_the_end_in_time(
    number: signal.Signals, process: subprocess.Popen[bytes], tmp_path: Path, record_property: Record
) -> None:
    out = tmp_path / "run"
    pids, before = family(process), len(RowCounter(out).rows("train"))
    begun = time.monotonic()
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    told, _ = process.communicate(timeout=60)
    took_s = time.monotonic() - begun
    record_property("stop", f"ended {took_s:.1f} s after {number.name}")
    assert process.returncode == INTERRUPTED and "the same command goes on" in told.decode()
    assert took_s < STOP_S and RunDir.open(out).status == "interrupted"
    saved = state(out)["learner"]["state"]["counters"]
    assert saved["updates"] >= before and saved["updates"] == RowCounter(out).rows("train")[-1]["updates"]
    assert RowCounter(out).rows("fault") == []
    seconds_until_gone(pids)


def test_nobody_outlives_a_driver_that_is_killed(process: subprocess.Popen[bytes], record_property: Record) -> None:
    pids = family(process)
    process.kill()
    record_property("gone", f"after {seconds_until_gone(pids):.1f} s")
