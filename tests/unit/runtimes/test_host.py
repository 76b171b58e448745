from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.runtimes import host


@pytest.fixture
def fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write a program that is started in place of Python."""
    path = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(path))
    host._try_out.cache_clear()
    yield path
    host._try_out.cache_clear()


def put(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_processor_that_kills_is_noticed_before_the_run(fake_python: Path) -> None:
    put(fake_python, "kill -ILL $$")
    host.check_autocast(RunConfig())
    with pytest.raises(ConfigError, match="autocast must be false on this machine.*was killed by SIGILL"):
        host.check_autocast(RunConfig(autocast=True))


def test_a_sound_processor_is_tried_once(fake_python: Path) -> None:
    put(fake_python, f"echo tried >> {fake_python}.log")
    for _ in range(3):
        host.check_autocast(RunConfig(autocast=True))
    assert Path(f"{fake_python}.log").read_text() == "tried\n"


def test_the_program_runs_as_it_stands() -> None:
    """As far as this machine lets it: an error of its own would be an exit code, not a signal."""
    host._try_out.cache_clear()
    assert not host._try_out().startswith("exited with code")


def test_a_lost_terminal_asks_for_an_orderly_end_unless_that_is_ignored() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with host.stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.signal == signal.SIGHUP
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        with host.stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop
    finally:
        signal.signal(signal.SIGHUP, before)


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (2, 2), (64, 8)])
def test_cores_are_those_of_the_affinity_and_of_the_quota(
    quota: int | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(host.CpuGroups, "cores", lambda self: quota)
    assert host.cores() == cores


@pytest.mark.parametrize(("asked", "cores", "threads"), [(None, 8, 2), (None, 3, 1), (3, 8, 3)])
def test_the_learner_gets_the_threads_of_the_setting_or_a_quarter_of_the_cores_for_a_time(
    asked: int | None, cores: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "cores", lambda: cores)
    before = torch.get_num_threads()
    with host.learner_threads(asked):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("sent", "ended_by"),
    [
        ([(0, signal.SIGHUP), (0.02, signal.SIGHUP)], []),  # a terminal that closes
        ([(0, signal.SIGINT), (0.1, signal.SIGTERM)], []),  # a terminal, then the parent that passes it on
        ([(0, signal.SIGINT), (0.9, signal.SIGINT), (1.1, signal.SIGINT)], [128 + signal.SIGINT]),
        ([(0, signal.SIGTERM), (60, signal.SIGHUP)], []),  # the user who stopped it logs out
        ([(0, signal.SIGHUP), (60, signal.SIGTERM)], [128 + signal.SIGTERM]),
    ],
)
def test_signals_within_a_second_are_one_request_and_only_a_later_one_ends_the_process_at_once(
    sent: list[tuple[float, signal.Signals]], ended_by: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, exits, before = FakeClock(), list[int](), signal.getsignal(signal.SIGHUP)
    monkeypatch.setattr(host, "time", clock)
    monkeypatch.setattr(host, "_exit", exits.append)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with host.stop_on_signals() as stop:
            for after_s, number in sent:
                clock.now = 1000.0 + after_s
                os.kill(os.getpid(), number)
            assert stop.signal == sent[0][1] and exits == ended_by
    finally:
        signal.signal(signal.SIGHUP, before)


def test_closed_standard_descriptors_are_opened_and_no_others() -> None:
    code = "import os; from clearl.runtimes.host import open_standard_descriptors as op; "
    code += "[os.close(n) for n in range(3)]; op(); [os.fstat(n) for n in range(3)]; "
    code += "left, right = os.pipe(); os._exit(0 if left == 3 else 1)"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0
