"""The reference runtime: one process, everything in turn, the same result for the same seed, bit for bit."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import torch

from clearl.acting.actor import sum_episodes
from clearl.acting.evaluator import Evaluation, EvaluationCancelled, Evaluator
from clearl.errors import EnvironmentFaultError, WorkerError
from clearl.learning.batching import Pairs
from clearl.nets.weights import FlatWeights
from clearl.records.schema import summary_row
from clearl.runtimes.host import cores, learner_threads
from clearl.runtimes.local.guard import guarded
from clearl.runtimes.runtime import RunContext, RunSpec
from clearl.runtimes.state import RunState
from clearl.runtimes.supervision import REBUILT, FaultBudget, RestartPolicy
from clearl.storage.checkpoints import Saved, fitting
from clearl.tasks.exits import exits_raise
from clearl.tasks.schedule import Grant
from clearl.tasks.vectors import allow_env_threads


def run_inline(spec: RunSpec) -> None:
    """Act, learn, evaluate, in turn."""
    allow_env_threads(cores())  # no other process acts meanwhile
    threads = spec.config.learner_threads or min(cores(), torch.get_num_threads())
    with learner_threads(threads), spec.open() as context, guarded():
        _run(context)


def _run(context: RunContext) -> None:
    saved = context.saved
    run = _InlineRun(context, incarnation=_incarnation(saved))
    try:
        if saved is None:
            run.begin()
        else:
            run.resume(saved)
        with exits_raise(), run.state.saved_if_children_fail(run.salvage):
            run.loop()
    finally:
        run.close()


class _InlineRun:
    def __init__(self, context: RunContext, *, incarnation: int) -> None:
        self.context, self.slots = context, list(range(context.config.slots))
        self.worker = context.factory.worker(self.slots, context.learner.network, incarnation=incarnation)
        self.evaluator = context.factory.evaluator(context.learner.network)
        self.new = context.factory.layout.empty(len(self.slots))
        self.state = RunState(context)
        self.budget = FaultBudget.of(context.config)
        self.faults = RestartPolicy(self.budget)
        self.round_frames = len(self.slots) * context.factory.layout.frames
        self.acting = False
        """True from the moment that a round is granted until its pairs have been read."""
        context.recorder.replay_by_task = lambda: [self.worker.replay_by_task()]

    def loop(self) -> None:
        context = self.context
        self._evaluate_waiting()
        while not self.state.finished:
            if self.state.unsaved and context.plan.is_over(context.cursor.next_segment()):
                self._checkpoint()  # the last evaluations may take an hour and fail
            if self.state.evaluation_due:
                self._evaluate()
            self._switch_if_due()
            grant = None if context.stop else context.cursor.grant(self.round_frames)
            if grant is None:
                return self._end()
            self._round(grant)
            if self.state.checkpoint_due:
                self._checkpoint()

    def begin(self) -> None:
        """Start from nothing, whatever a run that never came to a checkpoint left in the replay store."""
        for shard in self.worker.shards:
            shard.restore(0)
        self.context.recorder.begin(self.context.plan)

    def resume(self, saved: Saved) -> None:
        """Resume from a checkpoint, exactly."""
        tree = self.state.restore(saved)
        with fitting(saved.path):
            for shard, sequence in zip(self.worker.shards, tree["shards"], strict=True):
                shard.restore(int(sequence))
            if tree["actor"] is not None:
                self.worker.actor.restore(tree["actor"])
        if lost := sum(shard.counters()["lost"] for shard in self.worker.shards):
            problem = f"{lost} unrolls of replay are lost: they were in RAM only, or damaged on disk"
            self.context.recorder.fault(self.context.learner, "replay", problem)

    def close(self) -> None:
        self.worker.close()
        self.evaluator.close()

    def _round(self, grant: Grant) -> None:
        context, version, tasks = self.context, self.context.learner.updates, grant.tasks
        self.acting = True
        episodes = self.worker.act(tasks, self.new, grant.start_frames)
        self._mended("actor", self.worker.take_faults())
        self.state.ended(grant.segment, sum_episodes(episodes))
        replay = self.worker.replay_counters()
        full = context.intake.take(Pairs(self.slots, self.new, self.worker.recall(), version))
        self.worker.remember(self.new)
        self.acting = False
        for staging in full:
            for _phase in self.state.update(*context.intake.batch(staging), tasks, replay):
                pass  # nothing else is to be done between phases

    def _evaluate(self) -> None:
        learner = self.context.learner
        if evaluations := self._play(switch=False):
            self.state.evaluated(evaluations, frames=learner.frames, updates=learner.updates)

    def _switch_if_due(self) -> None:
        """Evaluate at the end of the segment that was trained on, before anything of the next one is trained on."""
        learner, next_segment = self.context.learner, self.context.cursor.next_segment()
        if next_segment > self.state.segment and (evaluations := self._play(switch=True)):
            ended = self.state.segment
            self.state.enter(next_segment)
            self.state.evaluated_switch(evaluations, ended, frames=learner.frames, updates=learner.updates)

    def _evaluate_waiting(self) -> None:
        """Evaluate the switches that were still waiting when the run was extended from another runtime."""
        state = self.state
        while state.snapshots and not self.context.stop:
            waiting, network = state.snapshots[0], copy.deepcopy(self.context.learner.network)
            FlatWeights(network).read_from(waiting.weights)
            training = state.tasks_in_training(waiting.segment)
            with closing(self.context.factory.evaluator(network)) as evaluator:
                evaluations = self._played(evaluator, waiting.updates, switch=True, training=training)
            if evaluations:
                state.snapshots.popleft()
                state.evaluated_switch(evaluations, waiting.segment, frames=waiting.frames, updates=waiting.updates)

    def _play(self, *, switch: bool) -> list[Evaluation]:
        """Evaluate all tasks with the present weights."""
        updates, training = self.context.learner.updates, self.state.tasks_in_training()
        return self._played(self.evaluator, updates, switch=switch, training=training)

    def _played(self, evaluator: Evaluator, updates: int, *, switch: bool, training: Sequence[str]) -> list[Evaluation]:
        """Evaluate all tasks; return nothing if the run is told to stop meanwhile, so that all are repeated."""
        tasks, stopped = self.context.plan.evaluate, self.context.stop.__bool__
        try:
            evaluations = evaluator.evaluate(tasks, updates, switch=switch, training=training, cancelled=stopped)
        except EvaluationCancelled:
            return []
        self._mended("evaluator", evaluator.take_faults())
        return evaluations

    def _mended(self, name: str, faults: list[EnvironmentFaultError]) -> None:
        """Record and count environments that failed and were built anew."""
        for fault in faults:
            self.context.recorder.fault(self.context.learner, name, f"{str(fault).splitlines()[0]}; {REBUILT}")
            if not self.faults.tolerates(time.monotonic()):
                raise WorkerError(f"environments failed more than {self.budget}: {fault}")

    def _end(self) -> None:
        """Finish: the plan has ended, or the run was told to stop."""
        if not self.context.stop and self.state.evaluated_frames != self.context.learner.frames:
            self._evaluate()
        self.state.finished = not self.context.stop
        if self.state.finished:
            memory = self.state.memory_nbytes(self.worker.replay_counters())
            self.context.recorder.emit(summary_row({"evaluations": self.state.evaluations, "memory_nbytes": memory}))
        self._checkpoint()

    def salvage(self) -> None:
        """Save what was learnt until an environment failed for good; acting resumes with new episodes."""
        if self.acting:
            self.context.cursor.take_back(self.round_frames)
        self._save(actor=None)

    def _checkpoint(self) -> None:
        self._save(actor=self.worker.actor.state())

    def _save(self, *, actor: dict[str, Any] | None) -> None:
        for shard in self.worker.shards:
            shard.sync()
        self.state.save(shards=[shard.next_sequence for shard in self.worker.shards], actor=actor)
        self._release_replay()

    def _release_replay(self) -> None:
        """Release replay that no kept checkpoint can need."""
        oldest = self.context.checkpoints.oldest()
        if oldest is not None:
            for shard, sequence in zip(self.worker.shards, oldest.json["shards"], strict=True):
                shard.set_floor(int(sequence))


def _incarnation(saved: Saved | None) -> int:
    """Return 0 if acting resumes exactly, else a new number: environments must not repeat their random stream."""
    if saved is None:
        return 0
    with fitting(saved.path):
        exact = saved.json["actor"] is not None
        return 0 if exact else int(saved.json["learner"]["state"]["counters"]["updates"])
