"""The learner's loop with workers and evaluators in other processes, for every backend."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearl.errors import WorkerError
from clearl.learning.batching import Intake, Staging
from clearl.nets.weights import FlatWeights
from clearl.records.schema import summary_row
from clearl.runtimes.backend import Backend
from clearl.runtimes.evaluating import EvaluationQueue, RemoteEvaluator, RemoteEvaluators
from clearl.runtimes.host import learner_threads
from clearl.runtimes.remote import RemoteWorker
from clearl.runtimes.runtime import RunContext
from clearl.runtimes.state import RunState
from clearl.runtimes.supervision import FaultBudget, SupervisorContext
from clearl.runtimes.timing import Stopwatch

_GLANCE_S = 0.1
_STOP_S = 5.0
_CLOSE_S = 2.0


def run_loop(backend: Backend, context: RunContext, *, earlier_faults: Sequence[str] = ()) -> None:
    """Train with the children of a backend; none of them outlives this call.

    `earlier_faults`: problems of earlier learners that the metrics do not record yet.
    """
    with learner_threads(context.config.learner_threads):
        run = LearnerLoop(context, backend)
        try:
            for problem in earlier_faults:
                context.recorder.fault(context.learner, "learner", problem)
            with run.state.saved_if_children_fail(run.salvage):
                run.loop()
        finally:
            run.close()


@dataclass(frozen=True)
class _Waiting:
    """A full batch that has been read, with the tasks and replay counters of its row."""

    staging: Staging
    tasks: Sequence[str]
    replay: dict[str, int]


@dataclass(frozen=True)
class _Switch:
    """A mark in the queue: what follows is of a later segment."""

    segment: int


class LearnerLoop:
    """One run with the children of `backend`; counts are the same for every backend."""

    def __init__(self, context: RunContext, backend: Backend) -> None:
        self.context, self.backend, self.state, self.watch = context, backend, RunState(context), Stopwatch()
        saved = context.saved
        sequences: Sequence[int] = [0] * context.config.slots
        if saved is None:
            context.recorder.begin(context.plan)
        else:
            sequences = [int(sequence) for sequence in self.state.restore(saved)["shards"]]
        context.recorder.processes = self._processes
        context.recorder.replay_by_task = lambda: [worker.by_task for worker in self.workers]
        self.flat = FlatWeights(context.learner.network)
        self.weight_store = backend.weight_store(self.flat.size)
        self._publish_weights()
        supervision = SupervisorContext(
            backend, context.config.worker_timeout_s, self._fault, self._restarted, FaultBudget.of(context.config)
        )
        self.workers = [
            RemoteWorker(i, slots, [sequences[s] for s in slots], context, self.weight_store, supervision)
            for i, slots in enumerate(divide(context.config.slots, backend.workers))
        ]
        evaluators = RemoteEvaluators(context, backend.weight_store(self.flat.size), supervision)
        self.evaluations = EvaluationQueue(self.state, self.flat, evaluators)
        self.grants, self.glanced_at = 0, 0.0
        self.waiting: deque[_Waiting | _Switch] = deque()
        self.read_segment = self.state.segment
        self.settling = False

    def loop(self) -> None:
        while not self.state.finished:
            if self.context.stop:
                return self._stop()
            if self._plan_done():
                return self._finish()
            if self.state.checkpoint_due and self._settle():
                self._save()
            self._grant_all()
            self.evaluations.start_if_due()
            if self.evaluations.delays_training:
                self._receive(_GLANCE_S)
            elif not self._learn():
                self._check_moving()
                self._receive(_GLANCE_S)

    def close(self) -> None:
        """End all children: orderly if they wait for work, at once if they do not."""
        processes = [child.supervisor for child in self._children()]
        closing = [process.ask_to_close() for process in processes]
        deadline = time.monotonic() + _CLOSE_S
        for process, asked in zip(processes, closing, strict=True):
            process.end(max(0.0, deadline - time.monotonic()) if asked else 0.0)
        for worker in self.workers:
            worker.close()
        self.evaluations.evaluators.weight_store.close()
        self.weight_store.close()

    # Acting and learning.

    def _grant_all(self) -> None:
        for worker in self.workers:
            self._grant(worker)

    def _grant(self, worker: RemoteWorker) -> None:
        if worker.grant is None and not self.settling:
            grant = self.context.cursor.grant(worker.round_frames)
            if grant is not None:
                self.grants += 1
                worker.send_grant(grant, self.grants)

    def _learn(self) -> bool:
        """Learn from one batch, reading pairs of a worker first if none waits; False if there was nothing to do."""
        read = self._read()
        if not self.waiting:
            return read
        first = self.waiting.popleft()
        if isinstance(first, _Switch):
            self.evaluations.add_switch(first.segment)
        else:
            self._update(first)
        return True

    def _read(self) -> bool:
        """Read the pairs of one worker and grant its next round, unless a batch waits; return whether it did."""
        if self.waiting:
            self._glance()  # updates may be long
            return False
        self._receive(0.0)
        worker = next_to_read(self.workers, self.context.intake)
        if worker is None:
            return False
        with self.watch("reading"):
            assert worker.grant is not None and worker.report is not None
            if worker.grant.segment > self.read_segment:
                self.read_segment = worker.grant.segment
                self.waiting.append(_Switch(self.read_segment))
            tasks, replay = worker.grant.tasks, self._replay_counters()
            full = self.context.intake.take(worker.pairs())
            self.state.ended(worker.grant.segment, worker.report.episodes)
            worker.acknowledge()
        self.waiting += [_Waiting(staging, tasks, replay) for staging in full]
        self._grant(worker)
        return True

    def _check_moving(self) -> None:
        """Raise if nothing will ever arrive: no worker is working, and the plan is not finished."""
        if self.waiting or self._plan_done() or any(worker.working for worker in self.workers):
            return
        grants = {worker.supervisor.name: worker.grant and worker.grant.segment for worker in self.workers}
        raise WorkerError(
            f"the run stands still: no worker acts and no pairs can be read at {self.context.learner.frames} frames "
            f"(segments under way: {grants}, slots in open batches: {self.context.intake.waiting_slots}); "
            "the same command goes on from the last checkpoint"
        )

    def _update(self, full: _Waiting) -> None:
        with self.watch("reading"):
            batch, mean_version = self.context.intake.batch(full.staging)
        self._run_phases(self.state.update(batch, mean_version, full.tasks, full.replay))
        with self.watch("weights"):
            self._publish_weights()
        self.evaluations.started = True

    def _run_phases(self, phases: Iterator[str]) -> None:
        """Run and time an update. Before each phase read the pairs of one worker, unless a batch waits already.

        So workers and learner wait less for each other, while no batch gets older than by one update.
        """
        phase: str | None = "learner"
        while phase is not None:
            with self.watch(phase):
                phase = next(phases, None)
            if phase is not None:
                try:
                    self._read()
                except WorkerError:
                    _complete(phases)  # or the run could not be saved
                    raise

    def _replay_counters(self) -> dict[str, int]:
        names = ("held", "bytes", "quarantined")
        return {name: sum(worker.replay.get(name, 0) for worker in self.workers) for name in names}

    def _publish_weights(self) -> None:
        self.flat.write_to(self.weight_store.buffer())
        self.weight_store.publish(self.context.learner.updates, self.context.learner.frames)

    # Children.

    def _receive(self, wait_s: float) -> None:
        """Receive messages of children."""
        with self.watch("waiting"):
            wakes = self.backend.wait(wait_s)
        for wake in wakes:
            wake()
        self._glance()

    def _glance(self) -> None:
        """Check those that send nothing, now and then."""
        now = time.monotonic()
        if now - self.glanced_at >= _GLANCE_S:
            self.glanced_at = now
            for child in self._children() if self.evaluations.started else self.workers:
                child.receive()
                child.supervisor.check()

    def _children(self) -> list[RemoteWorker | RemoteEvaluator]:
        return [*self.workers, *self.evaluations.evaluators.members]

    def _fault(self, name: str, problem: str) -> None:
        self.context.recorder.fault(self.context.learner, name, problem)

    def _restarted(self, name: str, after_s: float) -> None:
        self.context.recorder.restarted(self.context.learner, name, after_s)

    # Checkpoints and the end.

    def _plan_done(self) -> bool:
        idle = not self.waiting and all(worker.grant is None for worker in self.workers)
        return idle and self.context.cursor.finished

    def _settle(self, deadline: float = float("inf")) -> bool:
        """Learn from all that was granted and sync the shards; return False if a stop or the deadline comes first."""
        self.settling = True
        try:
            return self._drain(deadline) and self._sync(deadline)
        finally:
            self.settling = False

    def _drain(self, deadline: float) -> bool:
        # Pairs that have been read are learnt from, whatever the deadline: they count as trained on.
        while self.waiting or any(worker.grant is not None for worker in self.workers):
            if not self.waiting and self._too_late(deadline):
                return False
            if not self._learn():
                self._check_moving()
                self._receive(_GLANCE_S)
        return True

    def _sync(self, deadline: float) -> bool:
        for worker in self.workers:
            worker.sync()
        while not all(worker.synced for worker in self.workers):
            if self._too_late(deadline):
                return False
            self._receive(_GLANCE_S)
        return True

    def _too_late(self, deadline: float) -> bool:
        """Return whether the deadline has passed; without one, whether the run was asked to stop."""
        return bool(self.context.stop) if deadline == float("inf") else time.monotonic() > deadline

    def _save(self) -> None:
        sequences = [sequence for worker in self.workers for sequence in worker.sequences]
        self.state.save(shards=sequences, actor=None)

    def _stop(self) -> None:
        """Finish what is under way within seconds; grants that are not back by then are taken back."""
        if not self._settle(time.monotonic() + _STOP_S):
            self._take_back_grants()
        self._save()

    def _take_back_grants(self) -> None:
        for worker in self.workers:
            if worker.grant is not None:
                worker.supervisor.end()
                self.context.cursor.take_back(worker.round_frames)

    def salvage(self) -> None:
        """Save what was learnt until a child failed for good: the learner and the shards are sound."""
        while self.waiting:  # pairs that have been read count as trained on
            first = self.waiting.popleft()
            if isinstance(first, _Switch):
                self.evaluations.add_switch(first.segment)
            else:
                batch, mean_version = self.context.intake.batch(first.staging)
                _complete(self.state.update(batch, mean_version, first.tasks, first.replay))
        self._take_back_grants()
        self._save()

    def _finish(self) -> None:
        """Evaluate the last weights and pending switches at the end of the plan."""
        if self.state.segment < len(self.context.plan.segments):
            self.evaluations.add_switch(len(self.context.plan.segments))
        self._save_before_the_end()
        self.evaluations.started = True
        while not self.context.stop and not self.evaluations.all_done():
            self._receive(_GLANCE_S)
        self.state.finished = not self.context.stop
        self._settle(time.monotonic() + _STOP_S)
        if self.state.finished:
            memory = self.state.memory_nbytes(self._replay_counters())
            values = {"seconds": self._seconds(), "evaluations": self.state.evaluations, "memory_nbytes": memory}
            self.context.recorder.emit(summary_row(values))
        self._save()

    def _save_before_the_end(self) -> None:
        """Save before the last evaluation, which may take an hour and fail."""
        if self.state.unsaved and self._settle():
            self._save()

    def _processes(self) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, Any]]]:
        return self._seconds(), {child.supervisor.name: child.supervisor.health for child in self._children()}

    def _seconds(self) -> dict[str, dict[str, float]]:
        """Return the seconds of each process by activity."""
        children = {child.supervisor.name: dict(child.seconds) for child in self._children()}
        return {"learner": dict(self.watch.seconds), **children}


def _complete(phases: Iterator[str]) -> None:
    """Run an update to its end, with nothing between its phases."""
    for _phase in phases:
        pass


def divide(slots: int, workers: int) -> list[list[int]]:
    """Divide the slots among workers in order, as evenly as possible. A slot's replay stays with the slot."""
    return [part.tolist() for part in np.array_split(np.arange(slots), workers)]


def next_to_read(workers: Sequence[RemoteWorker], intake: Intake) -> RemoteWorker | None:
    """Choose the worker to read next: of the oldest segment under way, in the order of grants, none twice in a batch.

    After a resume with other workers the open batch may accept none of them: then any that has reported.
    """
    segment = min((worker.grant.segment for worker in workers if worker.grant is not None), default=None)
    current = [worker for worker in workers if worker.grant is not None and worker.grant.segment == segment]
    accepted = [worker for worker in current if intake.accepts(worker.slots)] or current
    reported = [worker for worker in accepted if worker.report is not None]
    return min(reported, key=lambda worker: worker.turn, default=None)
