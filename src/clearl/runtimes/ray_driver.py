"""The process that `clearl run --runtime ray` is: owns all actors of a run, so that they outlive the learner."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from tempfile import NamedTemporaryFile
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from clearl.errors import ConfigError, WorkerError
from clearl.runtimes.hosted import HostedLearner, Luggage
from clearl.runtimes.job import Order
from clearl.runtimes.ray_child import DEATH_S, ChildActor, in_words
from clearl.runtimes.ray_nodes import Crew, addresses, check_nodes, learner_place, on_node
from clearl.runtimes.ray_site import RaySite, Wanted
from clearl.runtimes.restarts import MOST_FAULTS, WINDOW_S, Restarts
from clearl.runtimes.stopping import StopFlag

_ARRIVAL_S = 120.0
_LEAST_PATIENCE_S = 10.0


class _Silent(Exception):
    """The learner's process is there, but does not answer."""


class Driver:
    """Places a learner, answers what it asks, and puts another in its place when its process dies."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._luggage = ray.put(Luggage.of(order.run_dir))
        make: Any = ray.remote  # its type does not know concurrency groups
        self._learner_class = make(concurrency_groups={"line": 1})(HostedLearner)
        self._child_class = make(concurrency_groups={"watch": 1})(ChildActor)
        self._children: dict[str, Any] = {}
        self._given: set[str] = set()  # those that the present learner has asked for
        self._restarts, self._deaths = Restarts(), list[str]()

    def run(self) -> None:
        """Train to the end of the plan, or until told to stop."""
        self._place_learner()  # its imports take seconds: meanwhile the nodes are asked
        try:
            crew = check_nodes(self._order, self._luggage)
            while not self._through(crew) and not self._order.stop:
                self._place_learner()
        finally:
            for actor in (self._learner, *self._children.values()):
                ray.kill(actor)

    def _place_learner(self) -> None:
        here = ray.get_runtime_context().get_node_id()
        self._node, gpus = learner_place(self._order.config.device, here, ray.nodes())
        self._learner = self._learner_class.options(num_cpus=0, num_gpus=gpus, **on_node(self._node)).remote()

    def _through(self, crew: Crew) -> bool:
        """Whether this learner came to the end of its work; False where its process died."""
        learner, stop, pid = self._learner, self._order.stop, None
        hear: Any = learner.hear.options(concurrency_group="line")
        try:
            pid = self._arrival()
            there = replace(self._order, run_dir=self._order.run_dir.absolute(), stop=StopFlag(), listeners=())
            training = learner.train.remote(there, self._luggage, partial(RaySite, crew), self._deaths)
            heard = hear.remote(stop.signal)
            patience_s = _ARRIVAL_S  # until its first question: what it imports may keep it from answering
            while heard in self._sign_of_life([heard, training], patience_s):
                question: Any = ray.get(heard)
                answer = ()
                if question is not None:
                    answer = (self._answer(question),)
                    patience_s = max(_LEAST_PATIENCE_S, self._order.config.worker_timeout_s)
                heard = hear.remote(stop.signal, *answer)
            ray.get(training)
        except RayTaskError as error:
            raise error.cause from error
        except (RayError, _Silent) as error:
            self._died(f"{in_words(error) if isinstance(error, RayError) else error} (process {pid})")
            return False
        return True

    @staticmethod
    def _sign_of_life(calls: list[Any], patience_s: float) -> list[Any]:
        """Those of the calls that came back. One of them does so every moment, unless the process hangs."""
        ready, _ = ray.wait(calls, timeout=patience_s)
        if not ready:
            raise _Silent(f"said nothing for {patience_s:g} s (worker_timeout_s) and was killed")
        return ready

    def _arrival(self) -> int:
        """The learner's process, once it is there; it must see the same run directory."""
        with NamedTemporaryFile(dir=self._order.run_dir.absolute(), prefix=".") as mark:
            try:
                pid, sees_mark = ray.get(self._learner.arrive.remote(mark.name), timeout=_ARRIVAL_S)
            except GetTimeoutError:
                raise ConfigError(
                    f"no learner could be started within {_ARRIVAL_S:g} s: is the GPU taken by another run?"
                ) from None
        if not sees_mark:
            raise ConfigError(
                f"the learner goes to node {addresses()[self._node]}, which does not see {self._order.run_dir}: "
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

    def _child(self, wanted: Wanted) -> Any:
        """The actor that an earlier learner had under this name, else a new one."""
        if wanted.name in self._given or wanted.name not in self._children:
            self._children[wanted.name] = self._child_class.options(**wanted.options).remote()
        self._given.add(wanted.name)
        return self._children[wanted.name]

    def _died(self, problem: str) -> None:
        """Make sure that it has gone, and wait as long as is due before there may be another learner."""
        ray.kill(self._learner)
        if not ray.wait([self._learner.arrive.remote("")], timeout=DEATH_S)[0]:
            raise WorkerError(f"the learner {problem}, but its process could not be ended on {self._node}")
        self._deaths.append(problem)
        self._given.clear()
        delay_s = self._restarts.delay_s(time.monotonic(), is_fault=True)
        if delay_s is None:
            raise WorkerError(
                f"the learner died more than {MOST_FAULTS} times in {WINDOW_S / 60:g} minutes: {problem}; "
                "the same command goes on from the last checkpoint"
            )
        time.sleep(delay_s)
