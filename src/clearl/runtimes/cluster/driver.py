"""The process that the user started, where the learner is elsewhere: owns all actors, so that they outlive it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from tempfile import NamedTemporaryFile
from typing import Any, Protocol

from clearl.errors import ConfigError, WorkerError
from clearl.runtimes.backend import Site
from clearl.runtimes.cluster.backend import DEATH_S, Actor, ActorLost, Ask, Call, Post, Wanted
from clearl.runtimes.host import StopFlag
from clearl.runtimes.runtime import Job, Order
from clearl.runtimes.supervision import MOST_FAULTS, WINDOW_S, Restarts

_ARRIVAL_S = 120.0
_LEAST_PATIENCE_S = 10.0

MakeSite = Callable[[Job, Ask], Site]


class Host(Protocol):
    """Has places for actors."""

    luggage: Any
    """A `clearl.runtimes.cluster.hosted.Luggage`, published."""

    @property
    def post(self) -> Post: ...

    def learner(self) -> tuple[Actor, str]:
        """A new `clearl.runtimes.cluster.hosted.HostedLearner`, and the address of its machine."""
        ...

    def child(self, wanted: Wanted) -> Actor:
        """A new `clearl.runtimes.cluster.hosted.HostedChild`."""
        ...

    def check(self) -> MakeSite:
        """Refuse machines that cannot do this run; else what makes the site of a learner there."""
        ...


class Driver:
    """Places a learner, answers what it asks, and puts another in its place when its process dies."""

    def __init__(self, order: Order, host: Host) -> None:
        self._order, self._host, self._post = order, host, host.post
        self._children: dict[str, Actor] = {}
        self._given: set[str] = set()  # those that the present learner has asked for
        self._restarts, self._deaths = Restarts(), list[str]()

    def run(self) -> None:
        """Train to the end of the plan, or until told to stop."""
        self._learner, self._address = self._host.learner()  # its imports take seconds: meanwhile machines are asked
        try:
            make_site = self._host.check()
            while not self._through(make_site) and not self._order.stop:
                self._learner, self._address = self._host.learner()
        finally:
            for actor in (self._learner, *self._children.values()):
                actor.kill()

    def _through(self, make_site: MakeSite) -> bool:
        """Whether this learner came to the end of its work; False where its process died."""
        learner, stop, pid = self._learner, self._order.stop, None
        try:
            pid = self._arrival()
            there = replace(self._order, run_dir=self._order.run_dir.absolute(), stop=StopFlag(), listeners=())
            training = learner.call("train", there, self._host.luggage, make_site, self._deaths)
            heard = learner.call_aside("hear", stop.signal)
            patience_s = _ARRIVAL_S  # until its first question: what it imports may keep it from answering
            while heard in self._sign_of_life([heard, training], patience_s):
                question, answer = self._post.answer(heard), ()
                if question is not None:
                    answer = (self._answer(question),)
                    patience_s = max(_LEAST_PATIENCE_S, self._order.config.worker_timeout_s)
                heard = learner.call_aside("hear", stop.signal, *answer)
            self._post.answer(training)
        except ActorLost as loss:
            self._died(f"{loss} (process {pid})")
            return False
        return True

    def _sign_of_life(self, calls: list[Call], patience_s: float) -> list[Call]:
        """Those of the calls that came back. One of them does so every moment, unless the process hangs."""
        ready = self._post.arrived(calls, patience_s)
        if not ready:
            raise ActorLost(f"said nothing for {patience_s:g} s (worker_timeout_s) and was killed")
        return ready

    def _arrival(self) -> int:
        """The learner's process, once it is there; it must see the same run directory."""
        with NamedTemporaryFile(dir=self._order.run_dir.absolute(), prefix=".") as mark:
            call = self._learner.call("arrive", mark.name)
            if not self._post.arrived([call], _ARRIVAL_S):
                raise ConfigError(
                    f"no learner could be started within {_ARRIVAL_S:g} s: is the GPU taken by another run?"
                )
            pid, sees_mark = self._post.answer(call)
        if not sees_mark:
            raise ConfigError(
                f"the learner goes to node {self._address}, which does not see {self._order.run_dir}: "
                "give an --out that both machines share, or start the run there"
            )
        return pid

    def _answer(self, question: Any) -> Any:
        if isinstance(question, Wanted):
            return self._child(question)
        if question["kind"] == "train":
            self._restarts.progressed()
        for listener in self._order.listeners:
            listener(question)
        return None

    def _child(self, wanted: Wanted) -> Actor:
        """The actor that an earlier learner had under this name, else a new one."""
        if wanted.name in self._given or wanted.name not in self._children:
            self._children[wanted.name] = self._host.child(wanted)
        self._given.add(wanted.name)
        return self._children[wanted.name]

    def _died(self, problem: str) -> None:
        """Make sure that it has gone, and wait as long as is due before there may be another learner."""
        self._learner.kill()
        if not self._post.arrived([self._learner.call("arrive", "")], DEATH_S):
            raise WorkerError(f"the learner {problem}, but its process could not be ended on {self._address}")
        self._deaths.append(problem)
        self._given.clear()
        delay_s = self._restarts.delay_s(time.monotonic(), is_fault=True)
        if delay_s is None:
            raise WorkerError(
                f"the learner died more than {MOST_FAULTS} times in {WINDOW_S / 60:g} minutes: {problem}; "
                "the same command goes on from the last checkpoint"
            )
        time.sleep(delay_s)
