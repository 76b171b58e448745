"""Workers as the learner's process sees them: their grants and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clearl.learning.batching import Pairs
from clearl.replay.labels import ByTask
from clearl.runtimes.backend import RemoteProcess, WeightStore
from clearl.runtimes.messages import (
    Alive,
    BadMessage,
    ChannelClosed,
    Failed,
    Message,
    Produce,
    Produced,
    Ready,
    Setup,
    Sync,
    Synced,
)
from clearl.runtimes.runtime import RunContext
from clearl.runtimes.supervision import Supervisor, SupervisorContext
from clearl.runtimes.timing import add_seconds
from clearl.tasks.schedule import Grant

_GRANTS_TO_COUNT = 64
"""Rounds of a worker between two counts of its unrolls by task: each looks at the index of all its shards."""
WORKER_PROGRAM = "clearl.runtimes.programs:WorkerProgram"


def received(supervisor: Supervisor) -> list[Message]:
    """Return the messages of a supervised process from its connection; its supervisor only notes them."""
    if supervisor.process is None:
        return []
    try:
        messages = supervisor.process.poll()
    except ChannelClosed:
        supervisor.exited()
        return []
    except BadMessage as error:
        supervisor.lost(f"sent what no worker sends ({error})", is_fault=True)
        return []
    for message in messages:
        supervisor.note(message)
        if isinstance(message, Failed):
            supervisor.failed(message)
            return []
    return [message for message in messages if not isinstance(message, Alive)]


class RemoteWorker:
    """One worker process and the reader of its pairs.

    It holds at most one grant, from the moment it is given until its pairs have been read. If the process exits in
    between, the next one is given the same grant, so that no frame is lost or counted twice; pairs that were reported
    stay where they are and can be read all the same, and the next process inserts them if that was not done.
    """

    def __init__(
        self, index: int, slots: Sequence[int], sequences: Sequence[int], context: RunContext,
        weight_store: WeightStore, supervision: SupervisorContext,
    ) -> None:  # fmt: skip
        self.slots, self.sequences = list(slots), tuple(sequences)
        self._context, self._weight_store, self._supervision = context, weight_store, supervision
        layout = context.factory.layout
        self.round_frames = len(slots) * layout.frames
        self._pairs = supervision.backend.pairs(layout, len(slots), context.factory.draws)
        self.grant: Grant | None = None
        self.turn = 0
        self.report: Produced | None = None
        self.replay: dict[str, int] = {}
        self.by_task: ByTask = {}
        self._played: Grant | None = None
        """The grant that was reported last."""
        self._grants = 0
        self.seconds: dict[str, float] = {}
        self.synced = True
        self._keep_unrolls_after_checkpoint = supervision.backend.keep_unrolls_after_checkpoint
        self.supervisor = Supervisor(f"worker-{index}", self._begin_process, self.receive, supervision)

    def receive(self) -> None:
        """Handle the messages of the process."""
        for message in received(self.supervisor):
            if isinstance(message, Ready):
                self._ready(message)
            elif isinstance(message, Produced):
                self.supervisor.done()
                self.supervisor.mended(message.faults)
                self.report, self.replay, self._played = message, message.replay, self.grant
                self.by_task = message.by_task or self.by_task
                add_seconds(self.seconds, message.seconds)
            elif isinstance(message, Synced):
                self.supervisor.done(progress=False)
                self.synced = True

    def send_grant(self, grant: Grant, turn: int) -> None:
        """Permit the worker to produce one unroll in each slot; `turn` counts the grants of the run."""
        assert self.grant is None
        self.grant, self.turn, self.supervisor.wanted = grant, turn, True
        self._grants += 1
        self._send_grant()

    @property
    def working(self) -> bool:
        """True if there is a grant whose pairs are still to come."""
        return self.grant is not None and self.report is None

    def pairs(self) -> Pairs:
        """Return the produced pairs; nothing is copied."""
        assert self.report is not None
        return Pairs(self.slots, self._pairs.new, self._pairs.replay, self.report.version)

    def acknowledge(self) -> None:
        """Note that the pairs have been read: they count, whatever happens to the worker."""
        assert self.report is not None
        self.sequences, self.report, self.grant = self.report.sequences, None, None

    def sync(self) -> None:
        """Ask the worker to sync its shards; `synced` says when they are."""
        self.synced = not self.supervisor.wanted
        if self.supervisor.ready:
            self.supervisor.send(Sync())

    def close(self) -> None:
        """Release the pairs; the process has ended."""
        self._pairs.close()

    def _ready(self, ready: Ready) -> None:
        self.sequences = ready.sequences if self.report is None else self.sequences
        self._keep_unrolls_after_checkpoint = False
        if ready.lost:
            self._supervision.fault(self.supervisor.name, _loss(ready.lost, self._context))
        if not self.synced:
            self.sync()
        elif self.grant is not None and self.report is None:
            self._send_grant()

    def _send_grant(self) -> None:
        if self.supervisor.ready and self.grant is not None:
            tasks = self._tasks(self.grant)
            self.supervisor.tasks = tuple(dict.fromkeys(tasks))
            by_task = self._grants % _GRANTS_TO_COUNT == 2  # soon, but not before there is anything
            self.supervisor.send(Produce(tasks, self.grant.start_frames, by_task))

    def _tasks(self, grant: Grant) -> tuple[str, ...]:
        return tuple(grant.tasks[slot] for slot in self.slots)

    def _begin_process(self, child: RemoteProcess, starts: int) -> None:
        sequences = self.sequences if self.report is None else self.report.sequences
        played = self._played
        setup = setup_message(
            self._context, self.supervisor.name, WORKER_PROGRAM, incarnation=sequences[0] + starts,
            slots=tuple(self.slots), sequences=sequences,
            keep_unrolls_after_checkpoint=self._keep_unrolls_after_checkpoint,
            played=() if played is None else self._tasks(played),
            played_frames=-1 if played is None else played.start_frames,
        )  # fmt: skip
        child.begin(setup, [self._pairs, self._weight_store])


def _loss(unrolls: int, context: RunContext) -> str:
    if context.factory.replay_store == "ram":
        return (
            f"{unrolls} unrolls of replay are lost with the RAM or the node they were on; "
            "--replay-store disk keeps them through the death of a worker"
        )
    return (
        f"{unrolls} unrolls of replay are lost: their files in {context.run_dir / 'replay'} are missing or damaged, or "
        "lie on a node that is gone; training goes on with the rest"
    )


def setup_message(context: RunContext, name: str, program: str, **more: Any) -> Setup:
    """Return the first message to a child of this run: its program, and all that it needs to make its parts."""
    return Setup(
        name=name, program=program, entry=context.factory_entry, config=context.config_yaml,
        run_dir=str(context.run_dir.absolute()), **more,
    )  # fmt: skip
