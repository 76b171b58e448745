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
from types import SimpleNamespace

import pytest

from clearl.errors import WorkerError
from clearl.runtimes.local import processes
from clearl.runtimes.local.child import PRINTED_BYTES, USER_ENVIRONMENT, Printed
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
    """Return whether a process runs and is no zombie."""
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


def test_libraries_have_one_thread_and_environments_the_variables_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    child = LocalProcess([])
    child.begin(SETUP, [])
    poll(child)
    child.send(Produce(("threads",)))
    assert poll(child) == Ready((1,), 0)
    # Environments start programs of their own, with another Python and threads of their own.
    for name in ("OMP_NUM_THREADS", "PYTHONPATH", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", USER_ENVIRONMENT):
        child.send(Produce(("environ", name)))
        assert poll(child) == Failed("", os.environ.get(name, ""), "", "")
    child.end()


def test_output_is_never_waited_for_and_its_end_is_kept(child: LocalProcess) -> None:
    poll(child)
    child.send(Produce(("chatter", "3000")))  # 3 MB, where a pipe holds 64 KB and nobody reads until it is done
    assert select.select([child.channel], [], [], 30)[0], "it waits for somebody to read"
    assert poll(child) == Ready((0,), 0)
    child.poll()  # makes the file small again
    assert os.fstat(child._output.descriptor).st_size < 1 << 20
    assert child.output().endswith("x\nthe end") and len(child.output()) <= 1 << 14


def test_what_was_printed_before_a_sigkill_is_kept_whole_though_nothing_was_flushed(child: LocalProcess) -> None:
    poll(child)
    for text in ("begin\n", "\N{RIGHTWARDS ARROW} no end of line"):
        child.send(Produce(("say", text)))
        poll(child)
    os.kill(child.pid, signal.SIGKILL)
    hear_the_end(child)
    child.end()
    assert child.output() == "begin\n\N{RIGHTWARDS ARROW} no end of line"


def test_native_output_and_that_of_forks_stand_beside_what_python_printed(child: LocalProcess) -> None:
    poll(child)
    child.send(Produce(("say", "first\n")))
    poll(child)
    child.send(Produce(("chatter", "0")))
    poll(child)
    child.send(Produce(("fork",)))  # no answer to this one
    child.send(Produce(("say", "last\n")))
    poll(child)
    assert child.output() == "first\nfrom the fork\nlast\nthe end"


@pytest.mark.parametrize("sizes", [(1,), (PRINTED_BYTES,), (PRINTED_BYTES + 5,), (300,) * 120, (9000, 9000, 40_000, 7)])
def test_the_ring_holds_the_last_that_was_printed(sizes: tuple[int, ...]) -> None:
    output = processes._Output()
    printed, whole = Printed(output.descriptor), b""
    for index, size in enumerate(sizes):
        data = bytes((index + place) % 251 for place in range(size))
        assert printed.write(data) == size
        whole += data
        assert output.last() == whole[-PRINTED_BYTES:]
    os.write(output.descriptor, b"native")
    assert output.last() == whole[-PRINTED_BYTES:] + b"native"
    output.close()
    assert output.last() == whole[-PRINTED_BYTES:] + b"native"


@pytest.mark.parametrize("place", ["group", "session"])
@pytest.mark.parametrize("kill", [False, True])
def test_what_an_environment_started_ends_with_the_run_and_leaves_no_shared_memory(kill: bool, place: str) -> None:
    name = f"/dev/shm/clearl-test-{os.getpid()}-{kill}-{place}"
    run = f"""
import os, select, signal, sys
from clearl.runtimes.local.processes import ProcessPool
from clearl.runtimes.messages import Produce, Setup
pool = ProcessPool(["child_program"])
child = pool.take()
child.begin(Setup("worker-0", "child_program:ChildProgram", "", "", "", 0), [])
def poll():
    while not (messages := child.poll()):
        select.select([child.channel], [], [], 10)
    return messages[0]
poll()
child.send(Produce(("map", {name!r}, {place!r})))
print(poll().sequences[0], flush=True)
if {kill}:
    os.kill(os.getpid(), signal.SIGKILL)
child.end()
pool.close()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", run], stdout=subprocess.PIPE, env=environment, check=False)
    assert done.returncode == (-signal.SIGKILL if kill else 0)
    with contextlib.suppress(ProcessLookupError):
        wait_until_gone(int(done.stdout), within_s=5)
    deadline = time.monotonic() + 5
    while os.path.exists(name) and time.monotonic() < deadline:
        os.sched_yield()
    assert not os.path.exists(name)


def test_a_kill_for_lack_of_memory_is_named_and_is_a_fault(
    child: LocalProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = [3]
    monkeypatch.setattr(processes, "MemoryGroups", lambda: SimpleNamespace(oom_kills=lambda: kills[0]))
    monkeypatch.setattr(processes, "_oom_kills", processes._OomKills())
    os.kill(child.pid, signal.SIGKILL)
    hear_the_end(child)
    code = child.end(patience_s=1)
    assert child.exit_reason(code) == ("was killed by SIGKILL", False), "somebody else did it"
    kills[0] += 1
    words, is_fault = child.exit_reason(code)
    assert is_fault and "for lack of memory" in words
    assert child.exit_reason(code) == ("was killed by SIGKILL", False), "each kill counts once"


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


@pytest.mark.parametrize("place", ["group", "session"])
def test_what_a_child_started_ends_with_it(child: LocalProcess, place: str) -> None:
    poll(child)
    child.send(Produce(("spawn", place)))
    message = poll(child)
    assert isinstance(message, Ready) and is_running(message.sequences[0])
    os.kill(child.pid, signal.SIGKILL)
    hear_the_end(child)
    child.end()
    assert not is_running(message.sequences[0]) or wait_until_gone(message.sequences[0], 5) is None


def test_without_waitid_a_child_is_seen_to_end_and_what_it_started_ends_with_it(
    child: LocalProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has it from Python 3.13 on."""
    monkeypatch.delattr(os, "waitid")
    poll(child)
    child.send(Produce(("spawn",)))
    message = poll(child)
    assert isinstance(message, Ready) and not child.has_exited()
    child.send(Produce(("exit", "3")))
    hear_the_end(child)
    assert child.end(patience_s=10) == 3
    assert not is_running(message.sequences[0]) or wait_until_gone(message.sequences[0], 5) is None


def test_a_child_that_waits_in_the_kernel_for_ever_is_named_instead_of_waited_for(
    child: LocalProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP in place of state D: with `end_group` gone it outlives its end as well."""
    monkeypatch.setattr(processes, "_KILLED_S", 0.05)
    os.kill(child.pid, signal.SIGSTOP)
    with (
        monkeypatch.context() as patch,
        pytest.raises(WorkerError, match=f"process {child.pid} was killed and does not"),
    ):
        patch.setattr(processes, "end_group", lambda *_: None)
        child.end()


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


def test_a_spare_for_the_background_serves_nothing_else() -> None:
    pool, usual = ProcessPool([]), os.getpriority(os.PRIO_PROCESS, 0)
    pool.prepare(background=True)
    pool.prepare()
    later, first = pool._idle
    taken = pool.take(), pool.take(background=True), pool.take(background=True)
    assert taken[:2] == (first, later) and not pool._idle
    assert [os.getpriority(os.PRIO_PROCESS, child.pid) - usual for child in taken] == [0, 5, 5]
    for child in taken:
        child.end()
    pool.close()
