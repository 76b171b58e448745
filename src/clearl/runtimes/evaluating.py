"""Evaluation beside training: the newest weights every `eval_every_frames`, and the weights of every switch."""

from __future__ import annotations

import numpy as np

from clearl.nets.weights import FlatWeights
from clearl.runtimes.messages import Evaluate
from clearl.runtimes.remote import RemoteEvaluators
from clearl.runtimes.state import RunState, Snapshot

_MOST_SNAPSHOTS = 8
"""Switches whose evaluation may be pending before training waits: each holds a copy of the weights."""


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
