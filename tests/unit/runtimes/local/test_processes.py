from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearl.runtimes.local.processes import LocalProcess, ProcessPool, exit_in_words
from clearl.runtimes.local.shared_memory import SharedBlock, SharedWeights
from clearl.runtimes.messages import ChannelClosed, Close, Failed, Message, Produce, Ready, Setup

SETUP = Setup("worker-7", "child_program:ChildProgram", "", "", "", 0)


@pytest.fixture
def child() -> Iterator[LocalProcess]:
    made = LocalProcess([])
    made.begin(SETUP, [])
    yield made
    made.end()


def poll(child: LocalProcess) -> Message:
    """The next message, as soon as it is there."""
    while not (messages := child.poll()):
        select.select([child.channel], [], [], 10)
    return messages[0]


def hear_the_end(child: LocalProcess) -> None:
    with pytest.raises(ChannelClosed):
        while not child.poll():
            select.select([child.channel], [], [], 0.05)


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until_gone(pid: int, within_s: float) -> None:
    waiter = os.pidfd_open(pid)
    try:
        assert select.select([waiter], [], [], within_s)[0], f"process {pid} is still there"
    finally:
        os.close(waiter)


def test_a_child_begins_with_its_memory_and_its_name_and_ends_when_told() -> None:
    weight_store = SharedWeights(SharedBlock.create(SharedWeights.nbytes(1)), 1)
    child = LocalProcess([])
    child.begin(SETUP, [weight_store, weight_store])
    assert poll(child) == Ready((child.pid, 2), 0)
    assert Path(f"/proc/{child.pid}/comm").read_text().strip() == "clearl:worker-7"
    child.send(Close())
    assert child.end(patience_s=10) == 0
    weight_store.close()


def test_a_child_has_one_thread_for_each_library_and_an_allocator_that_keeps_memory(child: LocalProcess) -> None:
    poll(child)
    for name, value in {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0"}.items():
        child.send(Produce(("environ", name)))
        assert poll(child) == Failed("", value, "", "")


@pytest.mark.parametrize(
    ("deed", "words"),
    [(("abort",), "was killed by SIGABRT"), (("exit", "3"), "exited with code 3")],
)
def test_it_is_told_how_a_child_ended(child: LocalProcess, deed: tuple[str, ...], words: str) -> None:
    poll(child)
    child.send(Produce(("print", "something is wrong")))
    child.send(Produce(deed))
    hear_the_end(child)
    code = child.end(patience_s=10)
    assert code is not None and exit_in_words(code) == words
    assert child.output().startswith("something is wrong")


def test_a_fault_of_an_environment_comes_with_the_environments_own_traceback(child: LocalProcess) -> None:
    poll(child)
    child.send(Produce(("fault",)))
    failed = poll(child)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.fingerprint) == (
        "EnvironmentFaultError",
        "walk: step raised RuntimeError: the motor is on fire",
    )
    assert "task 'walk', slot 3, step 7" in failed.problem
    assert 'raise RuntimeError("the motor is on fire")' in failed.traceback


def test_what_a_child_started_ends_with_it(child: LocalProcess) -> None:
    poll(child)
    child.send(Produce(("spawn",)))
    message = poll(child)
    assert isinstance(message, Ready) and is_running(message.sequences[0])
    os.kill(child.pid, signal.SIGKILL)
    hear_the_end(child)
    child.end()
    assert not is_running(message.sequences[0]) or wait_until_gone(message.sequences[0], 5) is None


PARENT = """
import os, select, sys, time
from clearl.runtimes.messages import Setup
from clearl.runtimes.local.processes import LocalProcess
started = [LocalProcess([]) for _ in range(3)]
for child in started[:2]:
    child.begin(Setup("x", "child_program:ChildProgram", "", "", "", 0), [])
    select.select([child.channel], [], [])
print(*(child.pid for child in started), flush=True)
time.sleep(60)
"""


def test_no_child_outlives_a_parent_that_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 3 and all(is_running(pid) for pid in children)
        waiters = [os.pidfd_open(pid) for pid in children]
        parent.kill()
        deadline = time.monotonic() + 5
        for waiter in waiters:
            assert select.select([waiter], [], [], max(0, deadline - time.monotonic()))[0], "an orphan"
            os.close(waiter)


def test_a_spare_is_used_once_and_a_dead_one_never() -> None:
    pool = ProcessPool([])
    pool.prepare()
    spare = pool._idle[0]
    assert spare is not None
    assert pool.take() is spare
    spare.end()
    pool.prepare()
    dead = pool._idle[0]
    assert dead is not None
    os.kill(dead.pid, signal.SIGKILL)
    wait_until_gone(dead.pid, 5)
    fresh = pool.take()
    assert fresh is not dead
    fresh.begin(SETUP, [])
    assert poll(fresh) == Ready((fresh.pid, 0), 0)
    fresh.end()
    pool.close()
