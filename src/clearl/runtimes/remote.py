"""A worker and the evaluator as the learner's process sees them: what they were told, and what they answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clearl.acting.evaluator import Evaluation
from clearl.config import to_yaml
from clearl.learning.batching import Pairs
from clearl.runtimes.backend import Board, Child
from clearl.runtimes.messages import Evaluate, Evaluated, Produce, Produced, Ready, Setup, Sync, Synced
from clearl.runtimes.programs import add_seconds
from clearl.runtimes.runtime import Job
from clearl.runtimes.supervision import Supervisor, Surroundings
from clearl.tasks.schedule import Grant

WORKER_PROGRAM = "clearl.runtimes.programs:WorkerProgram"
EVALUATOR_PROGRAM = "clearl.runtimes.programs:EvaluatorProgram"


class RemoteWorker:
    """One worker process and the place where its pairs can be read.

    It holds at most one grant, from the moment it is given until its pairs have been read. If the process dies in
    between, the next one is given the same grant, so that no frame is lost or counted twice; pairs that were reported
    stay where they are and can be read all the same, and the next process inserts them if that was not done.
    """

    def __init__(
        self, index: int, slots: Sequence[int], sequences: Sequence[int], job: Job, board: Board,
        around: Surroundings,
    ) -> None:  # fmt: skip
        self.slots, self.sequences, self._job, self._board, self._around = (
            list(slots),
            tuple(sequences),
            job,
            board,
            around,
        )
        layout = job.parts.layout
        self.round_frames = len(slots) * layout.frames
        self._pairs = around.site.pairs(layout, len(slots), job.parts.draws)
        self.grant: Grant | None = None
        self.turn = 0
        self.report: Produced | None = None
        self.replay: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.synced = True
        self._keeps_later = around.site.keeps_later
        self.process = Supervisor(f"worker-{index}", self._begin_process, self.poll, around)

    def poll(self) -> None:
        """Hear what the process has to say, and keep it running."""
        for message in self.process.poll():
            if isinstance(message, Ready):
                self._ready(message)
            elif isinstance(message, Produced):
                self.process.done()
                self.report, self.replay = message, message.replay
                add_seconds(self.seconds, message.seconds)
            elif isinstance(message, Synced):
                self.process.done(progress=False)
                self.synced = True

    def give(self, grant: Grant, turn: int) -> None:
        """Leave to produce one unroll in each slot; `turn` counts the grants of the run."""
        assert self.grant is None
        self.grant, self.turn, self.process.wanted = grant, turn, True
        self._send_grant()

    @property
    def working(self) -> bool:
        """Whether there is a grant whose pairs are still to come."""
        return self.grant is not None and self.report is None

    def pairs(self) -> Pairs:
        """What was produced; nothing is copied."""
        assert self.report is not None
        return Pairs(self.slots, self._pairs.new, self._pairs.replay, self.report.version)

    def acknowledge(self) -> None:
        """The pairs have been read: they count, whatever happens to the worker."""
        assert self.report is not None
        self.sequences, self.report, self.grant = self.report.sequences, None, None

    def sync(self) -> None:
        """Ask for the shards to be made safe; `synced` says when they are."""
        self.synced = not self.process.wanted
        if self.process.ready:
            self.process.send(Sync())

    def close(self) -> None:
        """Let go of everything; the process has ended."""
        self._pairs.close()

    def _ready(self, ready: Ready) -> None:
        self.sequences = ready.sequences if self.report is None else self.sequences
        self._keeps_later = False
        if ready.lost:
            self._around.fault(
                self.process.name,
                f"{ready.lost} unrolls of replay are lost with the RAM or the node they were on; "
                "--replay-store disk keeps them through the death of a worker",
            )
        if not self.synced:
            self.sync()
        elif self.grant is not None and self.report is None:
            self._send_grant()

    def _send_grant(self) -> None:
        if self.process.ready and self.grant is not None:
            self.process.send(Produce(tuple(self.grant.tasks[slot] for slot in self.slots)))

    def _begin_process(self, child: Child, starts: int) -> None:
        sequences = self.sequences if self.report is None else self.report.sequences
        setup = _setup(
            self._job, self.process.name, WORKER_PROGRAM, incarnation=sequences[0] + starts,
            slots=tuple(self.slots), sequences=sequences, keeps_later=self._keeps_later,
        )  # fmt: skip
        child.begin(setup, [self._pairs, self._board])


@dataclass(frozen=True)
class EvaluatedAll:
    """Every task, with the weights of one moment."""

    evaluations: list[Evaluation]
    frames: int
    updates: int


class RemoteEvaluator:
    """An evaluator process. It evaluates what stands on its board, one moment at a time."""

    def __init__(self, name: str, tasks: tuple[str, ...], job: Job, board: Board, around: Surroundings) -> None:
        self._tasks, self._job, self._board = tasks, job, board
        self.busy, self._order = False, Evaluate()
        self.seconds: dict[str, float] = {}
        self._results: list[Evaluated] = []
        self.process = Supervisor(name, self._begin_process, self.poll, around)

    def poll(self) -> None:
        """Hear what the process has to say, and keep it running."""
        for message in self.process.poll():
            if isinstance(message, Ready) and self.busy:
                self._results.clear()
                self.process.send(self._order)
            elif isinstance(message, Evaluated):
                self._results.append(message)
                add_seconds(self.seconds, message.seconds)
                if self.through:
                    self.process.done()

    def evaluate(self, order: Evaluate) -> None:
        """Evaluate the weights that now stand on the board."""
        assert not self.busy
        self.busy = self.process.wanted = True
        self._order = order
        if self.process.ready:
            self.process.send(order)

    @property
    def through(self) -> bool:
        """Whether all tasks of the evaluation that is under way are done."""
        return len(self._results) == len(self._tasks)

    def take(self) -> list[Evaluated]:
        """What came out of it."""
        results, self._results, self.busy = self._results, [], False
        return results

    def _begin_process(self, child: Child, starts: int) -> None:
        name, program = self.process.name, EVALUATOR_PROGRAM
        setup = _setup(self._job, name, program, incarnation=starts, tasks=self._tasks)
        child.begin(setup, [self._board])


class Evaluators:
    """All evaluators of a run, each with its tasks; together they evaluate one moment at a time."""

    def __init__(self, job: Job, board: Board, around: Surroundings) -> None:
        groups, self.board = around.site.evaluators, board
        names = ["evaluator"] if len(groups) == 1 else [f"evaluator-{index}" for index in range(len(groups))]
        self.members = [
            RemoteEvaluator(name, tasks, job, board, around) for name, tasks in zip(names, groups, strict=True)
        ]

    @property
    def busy(self) -> bool:
        return any(member.busy for member in self.members)

    def evaluate(self, order: Evaluate) -> None:
        """Evaluate the weights that now stand on the board."""
        for member in self.members:
            member.evaluate(order)

    def take(self) -> EvaluatedAll | None:
        """The evaluation that is under way, once all tasks are done."""
        if not all(member.through for member in self.members):
            return None
        results = [done for member in self.members for done in member.take()]
        evaluations = [Evaluation(done.task, done.scores, done.steps, done.column, done.others) for done in results]
        return EvaluatedAll(evaluations, results[0].frames, results[0].version)


def _setup(job: Job, name: str, program: str, **more: Any) -> Setup:
    config, run_dir = to_yaml(job.config), str(job.run_dir.absolute())
    return Setup(name=name, program=program, entry=job.parts_entry, config=config, run_dir=run_dir, **more)
