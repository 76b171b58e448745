"""Keeps one child process alive: notices that it exited or hangs, records it, and starts it again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from clearl.errors import ClearlError, ConfigError, CorruptFileError, StorageError, WorkerError
from clearl.runtimes.backend import Backend, RemoteProcess
from clearl.runtimes.messages import Alive, BadMessage, ChannelClosed, Close, Failed, Message, Ready

MOST_FAULTS = 5
WINDOW_S = 600.0
_LONGEST_WAIT_S = 10.0


class RestartPolicy:
    """Counts the deaths of one child.

    A fault is a death that the child or its environment brought about. One from outside (SIGKILL) is no fault and may
    happen any number of times, but a child that never gets to do anything in between is given up all the same.
    """

    def __init__(self) -> None:
        self._faults: deque[float] = deque()
        self._in_vain = 0

    def progressed(self) -> None:
        """The child has done some work since it was started."""
        self._in_vain = 0

    def delay_s(self, now: float, *, is_fault: bool) -> float | None:
        """How long to wait before the next start, after a death at `now`; None if there is to be none."""
        self._in_vain += 1
        if is_fault:
            self._faults.append(now)
        while self._faults and self._faults[0] <= now - WINDOW_S:
            self._faults.popleft()
        count = max(len(self._faults), self._in_vain)
        if count > MOST_FAULTS:
            return None
        return 0.0 if count < 2 else min(0.25 * 2 ** (count - 2), _LONGEST_WAIT_S)


BUILDING_S = 300.0
"""How long a child may be silent while it starts or builds environments."""

_EXIT_S = 1.0  # a process that says no more is about to end: its exit code is worth a moment

# A new process would meet the same: these end the run as what they are.
_BEYOND_REPAIR: dict[str, type[ClearlError]] = {
    kind.__name__: kind for kind in (ConfigError, CorruptFileError, StorageError)
}


@dataclass
class SupervisorContext:
    """What the children of one run share in the parent."""

    backend: Backend
    timeout_s: float
    fault: Callable[[str, str], None]
    """Records (name of the child, what happened)."""
    restarted: Callable[[str, float], None]
    """Records (name of the child, after how many seconds it was there again)."""
    early_faults: set[str] = field(default_factory=set)
    """Faults of children that never did any work: the second of the same kind is no accident."""
    clock: Callable[[], float] = time.monotonic


class Supervisor:
    """One child. `begin(child, number of starts before)` tells a new process what to be; `wake` is what the site
    gives back when there is something to hear."""

    def __init__(
        self,
        name: str,
        begin: Callable[[RemoteProcess, int], None],
        wake: Callable[[], None],
        supervision: SupervisorContext,
    ) -> None:
        self.name, self._begin, self._wake, self._supervision = name, begin, wake, supervision
        self.wanted = False
        """Whether there is anything to do for it; before that it is not started."""
        self.ready = False
        self._child: RemoteProcess | None = None
        self._starts = 0
        self._start_at = 0.0
        self._restarts = RestartPolicy()
        self._has_worked = self._working = self._building = False
        self._heard_at = 0.0
        self._lost_at: float | None = None

    @property
    def health(self) -> dict[str, Any]:
        """Whether it runs, and how often it had to be started again, for rows."""
        state = "running" if self.ready else "starting" if self._child is not None else "down"
        return {"state": state if self.wanted else "not needed yet", "restarts": max(0, self._starts - 1)}

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def poll(self) -> list[Message]:
        """What the child said; starts it where it is not running. Raises `WorkerError` when that has become useless."""
        now = self._supervision.clock()
        if self._child is None:
            if self.wanted and now >= self._start_at:
                self._launch(now)
            return []
        try:
            messages = self._child.poll()
        except ChannelClosed:
            self._died()
            return []
        except BadMessage as error:
            self._lost(f"sent what no worker sends ({error})", is_fault=True)
            return []
        for message in messages:
            self._heard_at, self._building = now, isinstance(message, Alive) and message.building
            if isinstance(message, Ready):
                self._is_ready(now)
            if isinstance(message, Failed):
                self._failed(message)
                return []
        if not messages:
            self._check_deadline(now)
        return [message for message in messages if not isinstance(message, Alive)]

    def send(self, message: Message) -> None:
        """Give the child work, which has to come to an end or show a sign of life in time. Only when `ready`."""
        assert self._child is not None
        self._working, self._heard_at = True, self._supervision.clock()
        try:
            self._child.send(message)
        except ChannelClosed:
            return  # the next poll finds out why

    def done(self, *, progress: bool = True) -> None:
        """The child has done what it was told and waits."""
        self._working = False
        if progress:
            self._has_worked = True
            self._restarts.progressed()

    def ask_to_close(self) -> bool:
        """Tell the child to end by itself, if it waits for work; whether it does."""
        idle = self.ready and not self._working
        if idle:
            self.send(Close())
        return idle

    def end(self, patience_s: float = 0.0) -> int | None:
        """End the child, if there is one; its exit code, None where it had to be killed."""
        if self._child is None:
            return None
        self._supervision.backend.unregister(self._child)
        child, self._child, self.ready = self._child, None, False
        return child.end(patience_s)

    def _launch(self, now: float) -> None:
        self._child = self._supervision.backend.take(self._wake)
        self._begin(self._child, self._starts)
        self._starts += 1
        self._working = self._building = True
        self._heard_at = now

    def _is_ready(self, now: float) -> None:
        self.ready, self._working = True, False
        if self._lost_at is not None:
            self._supervision.restarted(self.name, now - self._lost_at)
            self._supervision.backend.prepare()
            self._lost_at = None

    def _check_deadline(self, now: float) -> None:
        allowed, setting = self._supervision.timeout_s, " (worker_timeout_s)"
        if self._building:
            allowed, setting = max(BUILDING_S, allowed), " while it was starting or building environments"
        if self._working and now - self._heard_at > allowed:
            self._lost(f"said nothing for {allowed:g} s{setting} and was killed", is_fault=True)

    def _died(self) -> None:
        assert self._child is not None
        child, code = self._child, self.end(_EXIT_S)
        words, is_fault = child.exit_reason(code)
        printed = f"the last it printed:\n{child.output()}" if child.output() else ""
        self._lost(words, is_fault=is_fault, details=printed)

    def _failed(self, failed: Failed) -> None:
        self.end(_EXIT_S)
        if failed.kind in _BEYOND_REPAIR:
            raise _BEYOND_REPAIR[failed.kind](f"{self.name}: {failed.problem}")
        self._lost(failed.problem, is_fault=True, details=failed.traceback, fingerprint=failed.fingerprint)

    def _lost(self, problem: str, *, is_fault: bool, details: str = "", fingerprint: str | None = None) -> None:
        self.end()
        self._supervision.fault(self.name, problem)
        if is_fault and not self._has_worked:
            if (fingerprint or problem) in self._supervision.early_faults:
                self._give_up("met a fault that came twice before any work was done", problem, details)
            self._supervision.early_faults.add(fingerprint or problem)
        now = self._supervision.clock()
        self._lost_at = now if self._lost_at is None else self._lost_at
        delay = self._restarts.delay_s(now, is_fault=is_fault)
        if delay is None:
            self._give_up(f"failed more than {MOST_FAULTS} times in {WINDOW_S / 60:g} minutes", problem, details)
        self._start_at = now + delay

    def _give_up(self, why: str, problem: str, details: str) -> NoReturn:
        raise WorkerError(f"{self.name} {why}: {problem}\n\n{details}".rstrip())
