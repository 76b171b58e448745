"""Keep one child process running: notice that it exited or hangs, record it, and start it again."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from clearl.config import RunConfig
from clearl.errors import ClearlError, ConfigError, CorruptFileError, StorageError, WorkerError
from clearl.runtimes.backend import Backend, RemoteProcess
from clearl.runtimes.messages import Alive, ChannelClosed, Close, Failed, Message, Ready

_LONGEST_WAIT_S = 10.0
_LONGEST_GAP_S = 1.0


class RunningClock:
    """Seconds in which this process ran.

    A gap between two readings counts as one second at most, or as the time that this thread computed in it: after
    `docker pause`, a SLURM suspend or SIGSTOP, a child that could not be checked is not late. A supervisor reads it
    many times a second, unless an update takes longer.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, computed: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._computed = clock, computed
        self._last, self._last_computed, self._seconds = clock(), computed(), 0.0

    def __call__(self) -> float:
        now, computed = self._clock(), self._computed()
        self._seconds += min(now - self._last, max(_LONGEST_GAP_S, computed - self._last_computed))
        self._last, self._last_computed = now, computed
        return self._seconds


@dataclass(frozen=True)
class FaultBudget:
    """The number of faults of one process that are tolerated, and the delay before it is started again."""

    faults: int = 5
    window_s: float = 600.0
    backoff_s: float = 0.25

    @property
    def early_faults(self) -> int:
        """The number of equal faults tolerated before any work was done: one, unless the budget is large."""
        return max(1, self.faults // 5)

    @classmethod
    def of(cls, config: RunConfig) -> FaultBudget:
        """Return the budget of a run's settings."""
        return cls(config.fault_budget, config.fault_window_s, config.restart_backoff_s)

    def __str__(self) -> str:
        return f"{self.faults} times in {self.window_s / 60:g} minutes (fault_budget, fault_window_s)"


class RestartPolicy:
    """Counts the exits of one process.

    A fault is an exit caused by the process or its environment. One from outside (SIGKILL) is no fault and may happen
    any number of times, but a process that never does any work in between is given up all the same.
    """

    def __init__(self, budget: FaultBudget) -> None:
        self._budget = budget
        self._faults: deque[float] = deque()
        self._in_vain = 0

    def progressed(self) -> None:
        """Note that the process has done some work since it was started."""
        self._in_vain = 0

    def delay_s(self, now: float, *, is_fault: bool) -> float | None:
        """Return the seconds before the next start, after an exit at `now`; None if there is to be none."""
        self._in_vain += 1
        count = max(self._count(now, is_fault=is_fault), self._in_vain)
        if count > self._budget.faults:
            return None
        return 0.0 if count < 2 else min(self._budget.backoff_s * 2 ** (count - 2), _LONGEST_WAIT_S)

    def tolerates(self, now: float) -> bool:
        """Count a fault at `now` that the process repaired itself; return whether the budget allows for it."""
        return self._count(now, is_fault=True) <= self._budget.faults

    def _count(self, now: float, *, is_fault: bool) -> int:
        if is_fault:
            self._faults.append(now)
        while self._faults and self._faults[0] <= now - self._budget.window_s:
            self._faults.popleft()
        return len(self._faults)


REBUILT = "this environment was built anew, its neighbours went on"

BUILDING_S = 300.0
"""Seconds without a message that are tolerated while a child starts or builds environments."""

_EXIT_S = 1.0  # a process that closed its connection is about to exit: wait a moment for its exit code

# A new process would fail in the same way: these errors end the run as they are.
_BEYOND_REPAIR: dict[str, type[ClearlError]] = {
    kind.__name__: kind for kind in (ConfigError, CorruptFileError, StorageError)
}


@dataclass
class SupervisorContext:
    """The parts of the parent that the supervisors of one run share."""

    backend: Backend
    timeout_s: float
    fault: Callable[[str, str], None]
    """Records (name of the child, what happened)."""
    restarted: Callable[[str, float], None]
    """Records (name of the child, seconds until it was ready again)."""
    budget: FaultBudget = field(default_factory=FaultBudget)
    early_faults: Counter[str] = field(default_factory=Counter)
    """Faults of processes that never did any work: the second of the same kind is no accident."""
    clock: Callable[[], float] = field(default_factory=RunningClock)


class Supervisor:
    """Starts one process, notices that it exited or hangs, and starts it again; messages pass beside it.

    `begin(process, starts before)` sends the setup to a new one; the backend gives `wake` back when one has sent.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[RemoteProcess, int], None],
        wake: Callable[[], None],
        supervision: SupervisorContext,
        *,
        background: bool = False,
    ) -> None:
        self.name, self._begin, self._wake, self._supervision = name, begin, wake, supervision
        self._background = background
        self.wanted = False
        """True once there is work for it; before that it is not started."""
        self.ready = False
        self.tasks: tuple[str, ...] = ()
        """The tasks that it works on, for the message that says why it exited."""
        self._process: RemoteProcess | None = None
        self._starts = 0
        self._start_at = 0.0
        self._restarts = RestartPolicy(supervision.budget)
        self._has_worked = self._working = self._building = False
        self._message_at = 0.0
        self._lost_at: float | None = None

    @property
    def health(self) -> dict[str, Any]:
        """The state of the process and its number of restarts, for rows."""
        state = "running" if self.ready else "starting" if self._process is not None else "down"
        return {"state": state if self.wanted else "not needed yet", "restarts": max(0, self._starts - 1)}

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def process(self) -> RemoteProcess | None:
        """The process that runs now."""
        return self._process

    def check(self) -> None:
        """Start the process if it does not run, end it if it hangs. Raises `WorkerError` once restarts are useless."""
        now = self._supervision.clock()
        if self._process is None:
            if self.wanted and now >= self._start_at:
                self._launch(now)
        else:
            self._check_deadline(now)

    def note(self, message: Message) -> None:
        """Note that the process has sent a message."""
        now = self._supervision.clock()
        self._message_at, self._building = now, isinstance(message, Alive) and message.building
        if isinstance(message, Ready):
            self._is_ready(now)

    def send(self, message: Message) -> None:
        """Send work to a `ready` child; an answer or a heartbeat has to arrive in time."""
        assert self._process is not None
        self._working, self._message_at = True, self._supervision.clock()
        try:
            self._process.send(message)
        except ChannelClosed:
            return  # the next poll finds out why

    def done(self, *, progress: bool = True) -> None:
        """Note that the child has finished its work and waits."""
        self._working = False
        if progress:
            self._has_worked = True
            self._restarts.progressed()

    def ask_to_close(self) -> bool:
        """Ask the child to exit, if it waits for work; return whether it does."""
        idle = self.ready and not self._working
        if idle:
            self.send(Close())
        return idle

    def end(self, patience_s: float = 0.0) -> int | None:
        """End the child, if there is one; return its exit code, None where it had to be killed."""
        if self._process is None:
            return None
        self._supervision.backend.unregister(self._process)
        process, self._process, self.ready = self._process, None, False
        return process.end(patience_s)

    def _launch(self, now: float) -> None:
        self._process = self._supervision.backend.take(self._wake, background=self._background)
        self._begin(self._process, self._starts)
        self._starts += 1
        self._working = self._building = True
        self._message_at = now

    def _is_ready(self, now: float) -> None:
        self.ready, self._working = True, False
        if self._lost_at is not None:
            self._supervision.restarted(self.name, now - self._lost_at)
            self._supervision.backend.prepare(background=self._background)
            self._lost_at = None

    def _check_deadline(self, now: float) -> None:
        allowed, setting = self._supervision.timeout_s, " (worker_timeout_s)"
        if self._building:
            allowed, setting = max(BUILDING_S, allowed), " while it was starting or building environments"
        if self._working and now - self._message_at > allowed:
            self.lost(f"said nothing for {allowed:g} s{setting} and was killed", is_fault=True)

    def exited(self) -> None:
        """Find out why the process closed its connection, and start another."""
        assert self._process is not None
        process, code = self._process, self.end(_EXIT_S)
        words, is_fault = process.exit_reason(code)
        if is_fault and (code is None or code >= 0):
            words += f" while it worked on {', '.join(self.tasks) or 'nothing'}"
            words += "" if code is None else ": environment code that calls exit?"
        printed = f"the last it printed:\n{process.output()}" if process.output() else ""
        self.lost(words, is_fault=is_fault, details=printed)

    def failed(self, failed: Failed) -> None:
        """Handle a process that exits because of an error."""
        self.end(_EXIT_S)
        if failed.kind in _BEYOND_REPAIR:
            raise _BEYOND_REPAIR[failed.kind](f"{self.name}: {failed.problem}")
        self.lost(failed.problem, is_fault=True, details=failed.traceback, fingerprint=failed.fingerprint)

    def mended(self, faults: Sequence[Sequence[str]]) -> None:
        """Record and count environments of the process that failed and were built anew (problem, traceback)."""
        for problem, details in faults:
            self._supervision.fault(self.name, f"{problem}; {REBUILT}")
            if not self._restarts.tolerates(self._supervision.clock()):
                self.end()
                self._give_up(f"failed more than {self._supervision.budget}", problem, details)

    def lost(self, problem: str, *, is_fault: bool, details: str = "", fingerprint: str | None = None) -> None:
        """Record the loss, and when the next process may start."""
        self.end()
        self._supervision.fault(self.name, problem)
        if is_fault and not self._has_worked:
            if self._supervision.early_faults[fingerprint or problem] >= self._supervision.budget.early_faults:
                self._give_up("met a fault that came twice before any work was done", problem, details)
            self._supervision.early_faults[fingerprint or problem] += 1
        now = self._supervision.clock()
        self._lost_at = now if self._lost_at is None else self._lost_at
        delay = self._restarts.delay_s(now, is_fault=is_fault)
        if delay is None:
            self._give_up(f"failed more than {self._supervision.budget}", problem, details)
        self._start_at = now + delay

    def _give_up(self, why: str, problem: str, details: str) -> NoReturn:
        raise WorkerError(f"{self.name} {why}: {problem}\n\n{details}".rstrip())
