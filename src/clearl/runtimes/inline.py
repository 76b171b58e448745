"""The reference runtime: one process, everything in turn, the same result for the same seed, bit for bit."""

from __future__ import annotations

from clearl.acting.evaluator import Evaluation, EvaluationCancelled
from clearl.learning.batching import Pairs
from clearl.records.schema import summary_row
from clearl.runtimes.runtime import Job, Order
from clearl.runtimes.state import Progress, fitting
from clearl.storage.checkpoints import Saved


def run_inline(order: Order) -> None:
    """Act, learn, evaluate, in turn."""
    with order.open() as job:
        _run(job)


def _run(job: Job) -> None:
    saved = job.checkpoints.newest()
    run = _InlineRun(job, incarnation=_incarnation(saved))
    try:
        if saved is None:
            run.begin()
        else:
            run.resume(saved)
        run.loop()
    finally:
        run.close()


class _InlineRun:
    def __init__(self, job: Job, *, incarnation: int) -> None:
        self.job, self.slots = job, list(range(job.config.slots))
        self.worker = job.parts.worker(self.slots, job.learner.network, incarnation=incarnation)
        self.evaluator = job.parts.evaluator(job.learner.network)
        self.new = job.parts.layout.empty(len(self.slots))
        self.progress = Progress(job)

    def loop(self) -> None:
        job, round_frames = self.job, len(self.slots) * self.job.parts.layout.frames
        while not self.progress.finished:
            if self.progress.evaluation_due:
                self._evaluate()
            self._switch_if_due()
            grant = None if job.stop else job.cursor.grant(round_frames)
            if grant is None:
                return self._end()
            self._round(grant.segment, grant.tasks)
            if self.progress.checkpoint_due:
                self._checkpoint()

    def begin(self) -> None:
        """Start from nothing, whatever a run that never came to a checkpoint left in the replay store."""
        for shard in self.worker.shards:
            shard.restore(0)
        self.job.recorder.begin(self.job.plan)

    def resume(self, saved: Saved) -> None:
        """Go on from a checkpoint, exactly."""
        tree = self.progress.restore(saved)
        with fitting(saved.path):
            for shard, sequence in zip(self.worker.shards, tree["shards"], strict=True):
                shard.restore(int(sequence))
            if tree["actor"] is not None:
                self.worker.actor.restore(tree["actor"])
        if lost := sum(shard.counters()["lost"] for shard in self.worker.shards):
            problem = f"{lost} unrolls of replay are lost: they were in RAM only, or damaged on disk"
            self.job.recorder.fault(self.job.learner, "replay", problem)

    def close(self) -> None:
        self.worker.close()
        self.evaluator.close()

    def _round(self, segment: int, tasks: tuple[str, ...]) -> None:
        job, version = self.job, self.job.learner.updates
        job.cursor.count_episodes(segment, len(self.worker.act(tasks, self.new)))
        replay = self.worker.replay_counters()
        full = job.intake.take(Pairs(self.slots, self.new, self.worker.recall(), version))
        self.worker.remember(self.new)
        for staging in full:
            self.progress.update(*job.intake.batch(staging), tasks, replay)

    def _evaluate(self) -> None:
        learner = self.job.learner
        if evaluations := self._play(switch=False):
            self.progress.evaluated(evaluations, frames=learner.frames, updates=learner.updates)

    def _switch_if_due(self) -> None:
        """Evaluate where the segment that was trained on is over, before anything of the next one is."""
        learner, next_segment = self.job.learner, self.job.cursor.next_segment()
        if next_segment > self.progress.segment and (evaluations := self._play(switch=True)):
            ended = self.progress.segment
            self.progress.enter(next_segment)
            self.progress.evaluated_switch(evaluations, ended, frames=learner.frames, updates=learner.updates)

    def _play(self, *, switch: bool) -> list[Evaluation]:
        """All tasks; none of them if the run is told to stop meanwhile, so that it can repeat them all."""
        tasks, stop = self.job.plan.evaluate, self.job.stop
        try:
            return self.evaluator.evaluate(
                tasks, self.job.learner.updates, switch=switch, training=self.progress.tasks_in_training(),
                cancelled=stop.__bool__,
            )  # fmt: skip
        except EvaluationCancelled:
            return []

    def _end(self) -> None:
        """The plan is through, or the run was told to stop."""
        if not self.job.stop and self.progress.evaluated_frames != self.job.learner.frames:
            self._evaluate()
        self.progress.finished = not self.job.stop
        if self.progress.finished:
            self.job.recorder.emit(summary_row({"evaluations": self.progress.evaluations}))
        self._checkpoint()

    def _checkpoint(self) -> None:
        for shard in self.worker.shards:
            shard.sync()
        self.progress.save(
            shards=[shard.next_sequence for shard in self.worker.shards], actor=self.worker.actor.state()
        )
        self._release_replay()

    def _release_replay(self) -> None:
        """Nothing before the oldest checkpoint that is kept will be asked for again."""
        oldest = self.job.checkpoints.oldest()
        if oldest is not None:
            for shard, sequence in zip(self.worker.shards, oldest.json["shards"], strict=True):
                shard.set_floor(int(sequence))


def _incarnation(saved: Saved | None) -> int:
    """0 where acting goes on exactly; else environments begin anew, and must not live through the first days again."""
    if saved is None:
        return 0
    with fitting(saved.path):
        exact = saved.json["actor"] is not None
        return 0 if exact else int(saved.json["learner"]["state"]["counters"]["updates"])
