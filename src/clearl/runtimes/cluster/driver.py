"""The driver and the learner that it placed: requests go one way, answers the other.

The driver is the process that the user started. It owns all actors, so that they outlive a learner elsewhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue
from tempfile import NamedTemporaryFile
from typing import Any, Protocol

from clearl.errors import ConfigError, WorkerError
from clearl.records.reader import scan_rows
from clearl.records.schema import METRICS_FILE
from clearl.runtimes.backend import Backend
from clearl.runtimes.cluster.backend import KILL_TIMEOUT_S, ActorLost, ActorRequest, Ask, Call, RemoteActor, Transport
from clearl.runtimes.cluster.hosted import RunBundle
from clearl.runtimes.host import StopFlag, keep_freed_memory
from clearl.runtimes.loop import run_loop
from clearl.runtimes.runtime import RunContext, RunSpec
from clearl.runtimes.supervision import FaultBudget, RestartPolicy

_ARRIVAL_S = 120.0
_GLANCE_S = 0.2
_LEAST_PATIENCE_S = 10.0
_POLL_S = 0.2

MakeBackend = Callable[[RunContext, Ask], Backend]


class Host(Protocol):
    """Starts actors on the machines of a cluster."""

    bundle: Any
    """A `RunBundle`, published."""

    @property
    def transport(self) -> Transport: ...

    def learner(self) -> tuple[RemoteActor, str]:
        """Return a new `HostedLearner`, and the address of its machine."""
        ...

    def child(self, request: ActorRequest) -> RemoteActor:
        """Return a new `clearl.runtimes.cluster.hosted.HostedProgram`."""
        ...

    def check(self) -> MakeBackend:
        """Refuse machines that cannot do this run; return the function that makes a learner's backend there."""
        ...


class Driver:
    """Places a learner, answers its requests, and places another when its process exits."""

    def __init__(self, spec: RunSpec, host: Host) -> None:
        self._spec, self._host, self._transport = spec, host, host.transport
        self._children: dict[str, RemoteActor] = {}
        self._given: set[str] = set()  # the actors that the present learner has asked for
        config = spec.config
        self._budget = FaultBudget.of(config)
        self._restarts, self._earlier_faults = RestartPolicy(self._budget), list[str]()

    def run(self) -> None:
        """Train to the end of the plan, or until told to stop."""
        learner, address = self._host.learner()  # its imports take seconds; nodes are checked meanwhile
        try:
            make_backend = self._host.check()
            while not self._trains_to_end(learner, address, make_backend) and not self._spec.stop:
                learner, address = self._host.learner()
        finally:
            for actor in (learner, *self._children.values()):
                actor.kill()

    def _trains_to_end(self, learner: RemoteActor, address: str, make_backend: MakeBackend) -> bool:
        """Run one learner; return False if its process exited before the end of its work."""
        stop, pid = self._spec.stop, None
        try:
            pid = self._arrival(learner, address)
            there = replace(
                self._spec, run_dir=self._spec.run_dir.absolute(), factory=None, stop=StopFlag(), listeners=()
            )
            training = learner.call("train", there, self._host.bundle, make_backend, self._earlier_faults)
            poll = learner.call_aside("poll", stop.signal)
            patience_s = _ARRIVAL_S  # until its first request: its imports may keep it from answering
            while poll in self._answered([poll, training], patience_s):
                question, answer = self._transport.answer(poll), ()
                if question is not None:
                    answer = (self._answer(question),)
                    patience_s = max(_LEAST_PATIENCE_S, self._spec.config.worker_timeout_s)
                poll = learner.call_aside("poll", stop.signal, *answer)
            self._transport.answer(training)
        except ActorLost as loss:
            self._lost(learner, address, f"{loss} (process {pid})")
            return False
        return True

    def _answered(self, calls: list[Call], patience_s: float) -> list[Call]:
        """Return the calls that were answered; at any moment one of them is, unless the process hangs."""
        ready = self._transport.arrived(calls, patience_s)
        if not ready:
            raise ActorLost(f"said nothing for {patience_s:g} s (worker_timeout_s) and was killed")
        return ready

    def _arrival(self, learner: RemoteActor, address: str) -> int:
        """Wait for the learner's process and return its id; refuse one that does not see the run directory."""
        with NamedTemporaryFile(dir=self._spec.run_dir.absolute(), prefix=".") as mark:
            call, deadline = learner.call("arrive", mark.name), time.monotonic() + _ARRIVAL_S
            while not self._transport.arrived([call], _GLANCE_S) and time.monotonic() < deadline:
                if self._spec.stop:
                    raise KeyboardInterrupt  # before anything was trained
            if not self._transport.arrived([call], 0.0):
                raise ConfigError(
                    f"no learner could be started within {_ARRIVAL_S:g} s: is the GPU taken by another run?"
                )
            pid, sees_mark = self._transport.answer(call)
        if not sees_mark:
            raise ConfigError(
                f"the learner goes to node {address}, which does not see {self._spec.run_dir}: "
                "give an --out that both machines share, or start the run there"
            )
        return pid

    def _answer(self, question: Any) -> Any:
        if isinstance(question, ActorRequest):
            return self._child(question)
        if question["kind"] == "train":
            self._restarts.progressed()
        for listener in self._spec.listeners:
            listener(question)
        return None

    def _child(self, request: ActorRequest) -> RemoteActor:
        """Return the actor that an earlier learner had under this name, else a new one."""
        if request.name in self._given or request.name not in self._children:
            self._children[request.name] = self._host.child(request)
        self._given.add(request.name)
        return self._children[request.name]

    def _lost(self, learner: RemoteActor, address: str, problem: str) -> None:
        """End the process for certain, then wait for the restart delay before another learner may start."""
        learner.kill()
        if not self._transport.arrived([learner.call("arrive", "")], KILL_TIMEOUT_S):
            raise WorkerError(f"the learner {problem}, but its process could not be ended on {address}")
        self._earlier_faults.append(problem)
        self._given.clear()
        delay_s = self._restarts.delay_s(time.monotonic(), is_fault=True)
        if delay_s is None:
            raise WorkerError(
                f"the learner died more than {self._budget}: {problem}; "
                "the same command goes on from the last checkpoint"
            )
        time.sleep(delay_s)


class HostedLearner:
    """Runs `train` in one thread; in another the driver calls `poll` for its requests.

    A row is a request without an answer: training continues when the driver has shown it, as in the other runtimes, and
    waits while there is no driver.
    """

    def __init__(self) -> None:
        keep_freed_memory()
        self._stop = StopFlag()
        self._questions: SimpleQueue[Any] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()

    def arrive(self, mark: str) -> tuple[int, bool]:
        """Return the id of this process, and whether it sees the file `mark`."""
        return os.getpid(), os.path.exists(mark)

    def train(
        self,
        spec: RunSpec,
        bundle: RunBundle,
        make_backend: Callable[[RunContext, Ask], Backend],
        earlier_faults: Sequence[str],
    ) -> None:
        """Train until the plan is finished or the driver says stop; `earlier_faults`: problems of earlier learners."""
        bundle.unpack(spec.run_dir)
        with replace(spec, stop=self._stop, listeners=[self._ask]).open() as context:
            recorded = [row.get("problem") for row in scan_rows(spec.run_dir / METRICS_FILE).rows]
            new_faults = [problem for problem in earlier_faults if problem not in recorded]
            run_loop(make_backend(context, self._ask), context, earlier_faults=new_faults)

    def _ask(self, question: Any) -> Any:
        self._questions.put(question)
        return self._answers.get()

    def poll(self, stop: int | None, *answer: Any) -> Any:
        """Take the answer to the last request, if there was one, and wait a moment for the next request."""
        self._stop.signal = stop
        for given in answer:
            self._answers.put(given)
        try:
            return self._questions.get(timeout=_POLL_S)
        except Empty:
            return None
