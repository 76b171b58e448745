"""Evaluation beside training: the newest weights every `eval_every_frames`, and the weights of every switch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clearl.acting.evaluator import Evaluation
from clearl.nets.weights import FlatWeights
from clearl.runtimes.backend import RemoteProcess, WeightStore
from clearl.runtimes.messages import Evaluate, Evaluated, Ready
from clearl.runtimes.remote import received, setup_message
from clearl.runtimes.runtime import RunContext
from clearl.runtimes.state import RunState, Snapshot
from clearl.runtimes.supervision import Supervisor, SupervisorContext
from clearl.runtimes.timing import add_seconds

EVALUATOR_PROGRAM = "clearl.runtimes.programs:EvaluatorProgram"
_MOST_SNAPSHOTS = 8
"""Switches whose evaluation may be pending before training waits: each holds a copy of the weights."""


@dataclass(frozen=True)
class EvaluationRound:
    """The scores of every task with one version of the weights."""

    evaluations: list[Evaluation]
    frames: int
    updates: int


class RemoteEvaluator:
    """An evaluator process. It evaluates one published version of the weights at a time."""

    def __init__(
        self,
        name: str,
        tasks: tuple[str, ...],
        context: RunContext,
        weight_store: WeightStore,
        supervision: SupervisorContext,
    ) -> None:
        self._tasks, self._context, self._weight_store = tasks, context, weight_store
        self.busy, self._spec = False, Evaluate()
        self.seconds: dict[str, float] = {}
        self._results: list[Evaluated] = []
        self.supervisor = Supervisor(name, self._begin_process, self.receive, supervision, background=True)
        self.supervisor.tasks = tasks

    def receive(self) -> None:
        """Handle the messages of the process."""
        for message in received(self.supervisor):
            if isinstance(message, Ready) and self.busy:
                self._results.clear()
                self.supervisor.send(self._spec)
            elif isinstance(message, Evaluated):
                self.supervisor.mended(message.faults)
                self._results.append(message)
                add_seconds(self.seconds, message.seconds)
                if self.done:
                    self.supervisor.done()

    def evaluate(self, spec: Evaluate) -> None:
        """Evaluate the newest published weights."""
        assert not self.busy
        self.busy = self.supervisor.wanted = True
        self._spec = spec
        if self.supervisor.ready:
            self.supervisor.send(spec)

    @property
    def done(self) -> bool:
        """True if all tasks of the evaluation that is under way are done."""
        return len(self._results) == len(self._tasks)

    def take(self) -> list[Evaluated]:
        """Return the results of the finished evaluation."""
        results, self._results, self.busy = self._results, [], False
        return results

    def _begin_process(self, child: RemoteProcess, starts: int) -> None:
        name, program = self.supervisor.name, EVALUATOR_PROGRAM
        setup = setup_message(self._context, name, program, incarnation=starts, tasks=self._tasks)
        child.begin(setup, [self._weight_store])


class RemoteEvaluators:
    """All evaluators of a run, each with its tasks; together they evaluate one version of the weights at a time."""

    def __init__(self, context: RunContext, weight_store: WeightStore, supervision: SupervisorContext) -> None:
        groups, self.weight_store = supervision.backend.evaluators, weight_store
        names = ["evaluator"] if len(groups) == 1 else [f"evaluator-{index}" for index in range(len(groups))]
        self.members = [
            RemoteEvaluator(name, tasks, context, weight_store, supervision)
            for name, tasks in zip(names, groups, strict=True)
        ]

    @property
    def busy(self) -> bool:
        return any(member.busy for member in self.members)

    def evaluate(self, spec: Evaluate) -> None:
        """Evaluate the newest published weights."""
        for member in self.members:
            member.evaluate(spec)

    def take(self) -> EvaluationRound | None:
        """Return the evaluation that is under way, once all tasks are done."""
        if not all(member.done for member in self.members):
            return None
        results = [done for member in self.members for done in member.take()]
        evaluations = [
            Evaluation(done.task, done.scores, done.steps, done.column, done.others, done.success_rates)
            for done in results
        ]
        return EvaluationRound(evaluations, results[0].frames, results[0].version)


class EvaluationQueue:
    """Starts and records evaluations; evaluators that lag skip to the newest weights, but no switch."""

    def __init__(self, state: RunState, flat: FlatWeights, evaluators: RemoteEvaluators) -> None:
        self.evaluators = evaluators
        self._state, self._flat, self._learner = state, flat, state.context.learner
        self._under_way: Snapshot | None = None
        """The snapshot under evaluation; None for weights between switches, or nothing."""
        self.started = False
        """False until the first update: workers build their environments before it, and need the cores for that."""

    def add_switch(self, segment: int) -> None:
        """Keep the present weights for evaluation: all segments before `segment` have been learnt from."""
        ended = self._state.segment
        self._state.enter(segment)
        weights = np.empty(self._flat.size, np.float32)
        self._flat.write_to(weights)
        self._state.snapshots.append(Snapshot(ended, self._learner.updates, self._learner.frames, weights))
        self.started = True

    def start_if_due(self) -> None:
        """Start the evaluation that is due, if the evaluators are free; training continues meanwhile."""
        if not self._record():
            return
        if self._state.snapshots:
            self._start_switch(self._state.snapshots[0])
        elif self._state.evaluation_due:
            self._start_newest()

    def all_done(self) -> bool:
        """Start the next evaluation that is missing at the end; return True if there was none."""
        if not self._record():
            return False
        if self._state.snapshots:
            self._start_switch(self._state.snapshots[0])
            return False
        if self._state.evaluated_frames != self._learner.frames:
            self._start_newest()
            return False
        return True

    @property
    def delays_training(self) -> bool:
        """True if training has to wait for the evaluators."""
        if not self.evaluators.busy:
            return False
        pending = len(self._state.snapshots) - (self._under_way is not None)
        if self._state.context.config.eval_wait and (pending or self._state.evaluation_due):
            return self.started
        return pending >= _MOST_SNAPSHOTS

    def _start_newest(self) -> None:
        store = self.evaluators.weight_store
        self._flat.write_to(store.buffer())
        store.publish(self._learner.updates, self._learner.frames)
        self.evaluators.evaluate(Evaluate(training=self._state.tasks_in_training()))

    def _start_switch(self, snapshot: Snapshot) -> None:
        self._under_way, store = snapshot, self.evaluators.weight_store
        np.copyto(store.buffer(), snapshot.weights)
        store.publish(snapshot.updates, snapshot.frames)
        self.evaluators.evaluate(Evaluate(switch=True, training=self._state.tasks_in_training(snapshot.segment)))

    def _record(self) -> bool:
        """Record a finished evaluation; return whether the evaluators are free."""
        done = self.evaluators.take()
        if done is not None and self._under_way is not None:
            switch, self._under_way = self._state.snapshots.popleft(), None
            self._state.evaluated_switch(done.evaluations, switch.segment, frames=switch.frames, updates=switch.updates)
        elif done is not None:
            self._state.evaluated(done.evaluations, frames=done.frames, updates=done.updates)
        return not self.evaluators.busy
