"""A guard ends what bears its mark, and does not hold up the run if it is stopped or does not read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from run_processes import alive

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
        stopped.watch("mark", game.pid)
        started = time.monotonic()
        stopped.close()
        assert game.wait(20) == -signal.SIGKILL
    assert time.monotonic() - started < 20


def test_a_guard_that_does_not_read_does_not_hold_up_the_run(stopped: Guard) -> None:
    started = time.monotonic()
    for _ in range(20_000):  # more than a pipe holds
        stopped.release("mark")
    assert time.monotonic() - started < 20


def test_a_guard_that_will_not_end_is_killed(stopped: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_CLOSE_S", 0.05)
    send = stopped._process.send_signal
    monkeypatch.setattr(stopped._process, "send_signal", lambda number: number == signal.SIGCONT or send(number))
    stopped.close()
    assert stopped._process.returncode == -signal.SIGKILL


RUN = """
import os, signal, subprocess, sys
from clearl.runtimes.local.guard import MARK, guarded
game = [sys.executable, "-c", "import time; time.sleep(600)"]
launcher = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=-3, start_new_session=True).pid)"
with guarded():
    session = subprocess.Popen(game, start_new_session=True)
    daemon = subprocess.run([sys.executable, "-c", launcher, *game], stdout=subprocess.PIPE, text=True).stdout
    print(session.pid, daemon, flush=True)
    if {kill}:
        os.kill(os.getpid(), signal.SIGKILL)
assert MARK not in os.environ
session.wait()
"""


@pytest.mark.parametrize("kill", [False, True])
def test_a_child_in_a_session_of_its_own_and_a_daemon_end_with_the_block_and_with_the_process(kill: bool) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RUN.format(kill=kill)]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, timeout=60, check=False)
    assert done.returncode == (-signal.SIGKILL if kill else 0)
    games, deadline = [int(pid) for pid in done.stdout.split()], time.monotonic() + 5
    assert len(games) == 2
    while alive(games):
        assert time.monotonic() < deadline, "a game has outlived its run"


def test_the_mark_of_an_outer_block_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(guards.MARK, "outer")
    with guards.guarded():
        assert os.environ[guards.MARK] != "outer"
    assert os.environ[guards.MARK] == "outer"
