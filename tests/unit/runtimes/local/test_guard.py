"""A guard that is stopped or does not read does not hold up the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from clearl.runtimes.local import guard as guards
from clearl.runtimes.local.guard import Guard


@pytest.fixture
def stopped() -> Iterator[Guard]:
    guard = Guard()
    os.kill(guard.pid, signal.SIGSTOP)
    yield guard
    guard.close()


def test_a_stopped_guard_is_woken_to_end_what_it_watches(stopped: Guard) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0) as game:
        stopped.watch(game.pid)
        started = time.monotonic()
        stopped.close()
        assert game.wait(20) == -signal.SIGKILL
    assert time.monotonic() - started < 20


def test_a_guard_that_does_not_read_does_not_hold_up_the_run(stopped: Guard) -> None:
    started = time.monotonic()
    for _ in range(20_000):  # more than a pipe holds
        stopped.release(2**30)
    assert time.monotonic() - started < 20


def test_a_guard_that_will_not_end_is_killed(stopped: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_CLOSE_S", 0.05)
    send = stopped._process.send_signal
    monkeypatch.setattr(stopped._process, "send_signal", lambda number: number == signal.SIGCONT or send(number))
    stopped.close()
    assert stopped._process.returncode == -signal.SIGKILL
