"""Child processes: start one, receive from it, end it with all that it started; keep spares ready."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clearl.config import RunConfig
from clearl.errors import WorkerError
from clearl.runtimes.host import ALLOCATOR_ENVIRONMENT, BACKGROUND_NICENESS, anonymous_file, cores, exit_in_words
from clearl.runtimes.local.channel import Channel
from clearl.runtimes.local.child import PRINTED_AT, PRINTED_BYTES, USER_ENVIRONMENT
from clearl.runtimes.local.guard import MARK, Guard, end_group, new_mark
from clearl.runtimes.messages import Alive, ChannelClosed, Message, Setup, pack, unpack
from clearl.storage.cgroups import MemoryGroups

if TYPE_CHECKING:
    from clearl.runtimes.local.shared_memory import SharedPairs, SharedWeights
    from clearl.spaces import TaskSpec

_KEPT_OUTPUT_BYTES = 1 << 14
_MOST_OUTPUT_BYTES = 1 << 20
_APPENDED_AT = PRINTED_AT + PRINTED_BYTES
_GLANCE_S = 0.005
_KILLED_S = 30.0


class LocalProcess:
    """A child process that has imported `modules` and waits for its setup.

    It is started by name, not forked and not by pickle, so that a user's script needs no `__main__` guard. The end of
    its output is kept for the message that says why it exited.
    """

    def __init__(self, modules: Sequence[str], guard: Guard | None = None, *, background: bool = False) -> None:
        """`background`: training does not wait for it, so it runs at a lower priority, its imports included."""
        ours, theirs = Channel.pair()
        arguments = [str(os.getpid()), str(theirs.fileno()), *modules]
        self.channel, self._guard, self._output = ours, guard, _Output()
        self.background, self._building, self._mark = background, False, new_mark()
        try:
            # A process group of its own: Ctrl-C reaches the parent only, and `end` reaches what the child started.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-X", "faulthandler", "-m", "clearl.runtimes.local.child", *arguments],
                stdin=subprocess.DEVNULL, stdout=self._output.descriptor, stderr=self._output.descriptor,
                pass_fds=[theirs.fileno()], process_group=0, env=_environment(self._mark),
            )  # fmt: skip
        finally:
            theirs.close()
        if background:
            niceness = os.getpriority(os.PRIO_PROCESS, 0) + BACKGROUND_NICENESS
            os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)
        if guard is not None:
            guard.watch(self._mark, self._process.pid)

    def begin(self, setup: Setup, shared: Sequence[SharedPairs | SharedWeights]) -> None:
        """Send the setup and the shared memory to the child."""
        with contextlib.suppress(ChannelClosed):  # the next poll finds out
            self.channel.send_descriptors([part.block.descriptor for part in shared])
            self.send(setup)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Message) -> None:
        """Send a message; raise `ChannelClosed` if the child has exited."""
        self.channel.send(pack(message))

    def poll(self) -> list[Message]:
        """Return the messages that have arrived; raise `ChannelClosed` after the last one of a child that exited."""
        self._output.trim()
        messages = [unpack(values) for values in self.channel.poll()]
        self._note_builds(messages)
        # A process that the child started may hold the connection open after its exit.
        if not messages and self.has_exited():
            raise ChannelClosed
        return messages

    def _note_builds(self, messages: Sequence[Message]) -> None:
        """Let the guard look while environments are built: they may share memory with games that they start."""
        for message in messages:
            building = isinstance(message, Alive) and message.building
            if building != self._building and self._guard is not None:
                self._guard.look(self._mark, building=building)
            self._building = building

    def has_exited(self) -> bool:
        """Return whether it is dead, reaped or not."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13
            return self._has_been_reaped()
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _has_been_reaped(self) -> bool:
        if self._process.poll() is None:
            return False
        end_group(self._mark, self._process.pid)  # at once, before its number is given to another
        return True

    def end(self, patience_s: float = 0.0) -> int | None:
        """End the child and its process group for certain; return its exit code, None where it had to be killed."""
        deadline = time.monotonic() + patience_s
        while not (by_itself := self.has_exited()) and time.monotonic() < deadline:
            time.sleep(_GLANCE_S)
        if self._process.returncode is None:
            end_group(self._mark, self._process.pid)  # before it is reaped, its number cannot belong to anyone else
        try:
            code = self._process.wait(_KILLED_S)
        except subprocess.TimeoutExpired:
            raise WorkerError(
                f"process {self.pid} was killed and does not end: it waits in the kernel for a device or a network "
                "file system that does not answer. Another in its place could not open the same replay"
            ) from None
        if self._guard is not None:
            self._guard.release(self._mark)
        self._output.close()
        self.channel.close()
        return code if by_itself else None

    def exit_reason(self, code: int | None) -> tuple[str, bool]:
        """Return why it exited, and whether the process itself is to blame."""
        if code == -signal.SIGKILL and _oom_kills.grew():
            return "was killed by the kernel for lack of memory: give fewer --workers or --slots, or more memory", True
        # SIGKILL and SIGTERM come from outside the run.
        is_fault = code not in (-signal.SIGKILL, -signal.SIGTERM)
        return "closed its connection and was killed" if code is None else exit_in_words(code), is_fault

    def output(self) -> str:
        """Return the end of the process's output."""
        return self._output.last().decode(errors="replace").strip()


class _Output:
    """The end of a process's output, in a file without a name, so that the process never waits for a reader.

    The file begins with the ring of `child.Printed`; native code and programs that the process started append to it.
    """

    def __init__(self) -> None:
        self.descriptor = anonymous_file("clearl-output")
        os.ftruncate(self.descriptor, _APPENDED_AT)
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, os.O_APPEND)
        self._appended = b""
        self._last = b""

    def trim(self) -> None:
        """Cut the file to its end; to be called now and then."""
        if os.fstat(self.descriptor).st_size > _MOST_OUTPUT_BYTES:
            self._appended = self._tail()
            os.ftruncate(self.descriptor, _APPENDED_AT)

    def last(self) -> bytes:
        """Return the end of what Python code printed, then the end of what was appended."""
        if self.descriptor < 0:
            return self._last
        return self._printed() + (self._appended + self._tail())[-_KEPT_OUTPUT_BYTES:]

    def close(self) -> None:
        if self.descriptor >= 0:
            self._last = self.last()
            os.close(self.descriptor)
            self.descriptor = -1

    def _printed(self) -> bytes:
        count = int.from_bytes(os.pread(self.descriptor, PRINTED_AT, 0), sys.byteorder)
        ring = os.pread(self.descriptor, PRINTED_BYTES, PRINTED_AT)
        if count <= PRINTED_BYTES:
            return ring[:count]
        oldest = count % PRINTED_BYTES
        return ring[oldest:] + ring[:oldest]

    def _tail(self) -> bytes:
        start = max(_APPENDED_AT, os.fstat(self.descriptor).st_size - _KEPT_OUTPUT_BYTES)
        return os.pread(self.descriptor, _KEPT_OUTPUT_BYTES, start)


class _OomKills:
    """Tells whether a process was killed for lack of memory, each kill once."""

    def __init__(self) -> None:
        self._groups = MemoryGroups()
        self._seen = self._groups.oom_kills()

    def grew(self) -> bool:
        """Return whether the kernel killed a process since the last call."""
        if self._groups.oom_kills() <= self._seen:
            return False
        self._seen += 1
        return True


_oom_kills = _OomKills()


class ProcessPool:
    """Starts children, and keeps some in reserve that have finished the slow imports."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules, self._guard = modules, Guard()
        self._idle: list[LocalProcess] = []

    def take(self, *, background: bool = False) -> LocalProcess:
        """Return a child of this kind, from the reserve where one is alive."""
        for child in self._spares(background):
            self._idle.remove(child)
            if not child.has_exited():
                return child
            child.end()
        return LocalProcess(self._modules, self._guard, background=background)

    def prepare(self, count: int = 1, *, background: bool = False) -> None:
        """Start children until `count` of this kind are in reserve."""
        for _ in range(count - len(self._spares(background))):
            self._idle.append(LocalProcess(self._modules, self._guard, background=background))

    def _spares(self, background: bool) -> list[LocalProcess]:
        return [child for child in self._idle if child.background == background]

    def close(self) -> None:
        while self._idle:
            self._idle.pop().end()
        self._guard.close()


def _environment(mark: str) -> dict[str, str]:
    """Return the parent's variables with one thread for each library, the same modules to import, and the mark.

    The child restores the user's own values once its libraries are loaded: environments start programs, too.
    """
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    ours = {**ALLOCATOR_ENVIRONMENT, **threads, "PYTHONPATH": path}
    return {
        **os.environ,
        **ours,
        MARK: mark,
        USER_ENVIRONMENT: json.dumps({name: os.environ.get(name) for name in ours}),
    }


_CHILD_MODULES = ("clearl.runtimes.programs", "clearl.runtimes.local.shared_memory")
_SLOTS_IF_SMALL = 16
"""The least slots of a worker where observations are small."""
_SMALL_BYTES = 4096

_started: list[ProcessPool] = []


def default_workers(cores: int, slots: int, spec: TaskSpec, *, slow_steps: bool = False) -> int:
    """Return how many workers keep the cores busy beside the learner.

    A worker's step has a fixed cost, whatever the number of its slots. Where observations are small that cost
    dominates, and few workers with many slots do better: the 32 unrolls of an update on MinAtar's Breakout cost one
    worker 22 ms of CPU and two 32, beside 16 for the update. With large observations the fixed cost is small, and so
    it is beside the steps of a physics engine: on HalfCheetah two workers made 1.2 times the frames of one on 2 cores.
    """
    if spec.observation.nbytes <= _SMALL_BYTES and not slow_steps:
        return least_workers(cores, slots)
    return max(1, min(cores, slots // 4))


def least_workers(cores: int, slots: int) -> int:
    """Return the default number of workers where observations are small; others have no fewer."""
    return max(1, min(cores - 1, slots // _SLOTS_IF_SMALL))


def workers_of(config: RunConfig, spec: TaskSpec, suite: object) -> int:
    """Return the number of workers of a run, from its suite or the class of that."""
    from clearl.tasks.suite import StepsSlowly  # not above: it imports NumPy, and the first children start before that

    slow_steps = isinstance(suite, StepsSlowly) and suite.slow_steps
    return config.workers or default_workers(cores(), config.slots, spec, slow_steps=slow_steps)


@contextmanager
def prewarm(config: RunConfig, factory_entry: str, workers: Callable[[], int | None]) -> Iterator[None]:
    """Start children on their imports for the run that follows within the block; `workers` as in `process_pool`."""
    if config.runtime == "local":
        _started.append(process_pool(config, factory_entry, workers))
    try:
        yield
    finally:
        while _started:  # there was no run after all
            _started.pop().close()


def process_pool(config: RunConfig, factory_entry: str, workers: Callable[[], int | None]) -> ProcessPool:
    """Return the prewarmed children for a run of this config, else new ones.

    `workers` tells how many workers there will be, if it can; it is called while the first ones do their imports.
    """
    if _started:
        return _started.pop()
    pool, least = ProcessPool([factory_entry.partition(":")[0], *_CHILD_MODULES]), least_workers(cores(), config.slots)
    try:
        pool.prepare(config.workers or least)
        count = workers() or config.workers or least
        pool.prepare(count)
        if count < cores():  # else it starts after the first update, which needs the cores
            pool.prepare(background=True)
    except BaseException:
        pool.close()
        raise
    return pool
