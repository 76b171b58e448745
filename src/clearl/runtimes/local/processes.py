"""Child processes: how one is started, received from, and ended with all that it started; spares kept ready."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clearl.runtimes.host import ENVIRONMENT, exit_in_words
from clearl.runtimes.local.channel import Channel
from clearl.runtimes.messages import ChannelClosed, Message, Setup, pack, unpack

if TYPE_CHECKING:
    from clearl.runtimes.local.shared_memory import SharedPairs, SharedWeights
from collections.abc import Iterator
from contextlib import contextmanager

from clearl.config import RunConfig
from clearl.runtimes.host import cores

_KEPT_OUTPUT_BYTES = 1 << 14
_GLANCE_S = 0.005


class LocalProcess:
    """A process of its own that has imported `modules` and waits for something to do.

    It is started by name, not forked and not by pickle, so that a user's script needs no `__main__` guard. What it
    prints is kept, the last of it, for the message that says why it died.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        ours, theirs = Channel.pair()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        arguments = [str(os.getpid()), str(theirs.fileno()), *modules]
        self.channel, self._read_end, self._output = ours, read_end, b""
        try:
            # A process group of its own: Ctrl-C reaches the parent only, and `end` reaches what the child started.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-X", "faulthandler", "-m", "clearl.runtimes.local.child", *arguments],
                stdin=subprocess.DEVNULL, stdout=write_end, stderr=write_end, pass_fds=[theirs.fileno()],
                process_group=0, env=_environment(),
            )  # fmt: skip
        finally:
            os.close(write_end)
            theirs.close()

    def begin(self, setup: Setup, shared: Sequence[SharedPairs | SharedWeights]) -> None:
        """Tell the child what to be, and give it its shared memory."""
        with contextlib.suppress(ChannelClosed):  # whoever polls finds out
            self.channel.send_descriptors([part.block.descriptor for part in shared])
            self.send(setup)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Message) -> None:
        """Raises `ChannelClosed` if the child has gone."""
        self.channel.send(pack(message))

    def poll(self) -> list[Message]:
        """What has arrived; raises `ChannelClosed` when the child has gone and everything it said was heard."""
        self._drain_output()
        messages = [unpack(values) for values in self.channel.poll()]
        # A process that the child started may hold the connection open after its death.
        if not messages and self.has_exited():
            raise ChannelClosed
        return messages

    def has_exited(self) -> bool:
        """Whether it is dead, reaped or not."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self, patience_s: float = 0.0) -> int | None:
        """Make sure that the child and all in its group are gone; its exit code, None where it had to be killed."""
        deadline = time.monotonic() + patience_s
        while not (by_itself := self.has_exited()) and time.monotonic() < deadline:
            time.sleep(_GLANCE_S)
        if self._process.returncode is None:
            # Before the child is reaped, its number cannot belong to anyone else.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self._drain_output()
        self._close_output()
        self.channel.close()
        return code if by_itself else None

    def exit_reason(self, code: int | None) -> tuple[str, bool]:
        """Why it has gone, in words, and whether it brought that about itself."""
        # Whoever sends SIGKILL or SIGTERM, be it the kernel short of memory, is not part of the run.
        is_fault = code not in (-signal.SIGKILL, -signal.SIGTERM)
        return "closed its connection and was killed" if code is None else exit_in_words(code), is_fault

    def output(self) -> str:
        """The last of what the child printed."""
        return self._output.decode(errors="replace").strip()

    def _drain_output(self) -> None:
        while self._read_end >= 0:
            try:
                data = os.read(self._read_end, _KEPT_OUTPUT_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._close_output()
                return
            self._output = (self._output + data)[-_KEPT_OUTPUT_BYTES:]

    def _close_output(self) -> None:
        if self._read_end >= 0:
            os.close(self._read_end)
            self._read_end = -1


class ProcessPool:
    """Starts children, and keeps some in reserve that have the slow imports behind them."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._idle: list[LocalProcess] = []

    def take(self) -> LocalProcess:
        """A child to begin with."""
        while self._idle:
            child = self._idle.pop(0)
            if not child.has_exited():
                return child
            child.end()
        return LocalProcess(self._modules)

    def prepare(self, count: int = 1) -> None:
        """Have so many in reserve."""
        while len(self._idle) < count:
            self._idle.append(LocalProcess(self._modules))

    def close(self) -> None:
        while self._idle:
            self._idle.pop().end()


def _environment() -> dict[str, str]:
    """The parent's, one thread for each library, and the same modules to import."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **ENVIRONMENT, **threads, "PYTHONPATH": path}


_CHILD_MODULES = ("clearl.runtimes.programs", "clearl.runtimes.local.shared_memory")
SLOTS_IF_SMALL = 16
"""Where observations are small, a worker has at least so many slots."""

_started: list[ProcessPool] = []


@contextmanager
def prewarm(config: RunConfig, factory_entry: str) -> Iterator[None]:
    """Have children at work on their imports for the run that follows within the block."""
    if config.runtime == "local":
        _started.append(process_pool(config, factory_entry))
    try:
        yield
    finally:
        while _started:  # there was no run after all
            _started.pop().close()


def process_pool(config: RunConfig, factory_entry: str) -> ProcessPool:
    """Children for a run of this config, whose parts they make: those that have a head start, else new ones."""
    if _started:
        return _started.pop()
    pool = ProcessPool([factory_entry.partition(":")[0], *_CHILD_MODULES])
    # One too many is no loss: it becomes the evaluator.
    pool.prepare(config.workers or max(1, min(cores(), config.slots // SLOTS_IF_SMALL)))
    return pool
