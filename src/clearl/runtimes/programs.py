"""The programs of worker and evaluator processes, independent of the backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import torch

from clearl.acting.actor import sum_episodes
from clearl.acting.worker import Worker, labels_of
from clearl.nets.network import PolicyNetwork
from clearl.registry import load_entry
from clearl.replay.labels import UNKNOWN
from clearl.runtimes.backend import Connection, Endpoints, MessageSink, PairWriter
from clearl.runtimes.messages import (
    Alive,
    Close,
    Evaluate,
    Evaluated,
    Message,
    Produce,
    Produced,
    Ready,
    Setup,
    Sync,
    Synced,
    describe_faults,
)
from clearl.runtimes.timing import Stopwatch, TimedNetwork, TimedSuite, beating

if TYPE_CHECKING:  # it names the parts of the learner, which these processes need not import
    from clearl.runtimes.runtime import Factory

_ALIVE_EVERY_S = 0.5
_ROUNDS_TO_RECLAIM = 16  # with small frames, asking each time costs as much as a tenth of replay


class Program(Protocol):
    """A worker or an evaluator: made from (sink, setup, endpoints), then given one message after the other."""

    ready: Ready
    """The first message to every learner: the program may outlive one."""
    watch: Stopwatch

    def handle(self, message: Message) -> Iterator[Message]:
        """Handle a message; each answer is sent as soon as it is yielded."""
        ...

    def close(self) -> None: ...


def serve(connection: Connection, program: Program) -> None:
    """Handle messages until told to close."""
    try:
        connection.send(program.ready)
        while True:
            with program.watch("waiting"):
                message = connection.receive()
            if isinstance(message, Close):
                return
            for answer in program.handle(message):
                connection.send(answer)
    finally:
        program.close()


def make_factory(setup: Setup) -> Factory:
    """Make the factory of the run from its config."""
    return load_entry(setup.entry)(setup.config, Path(setup.run_dir))


def heartbeat(sink: MessageSink) -> Callable[[], None]:
    """Return a function to call often, which sends a heartbeat at most twice a second."""
    last = time.monotonic()

    def beat() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _ALIVE_EVERY_S:
            last = now
            sink.send(Alive(building=False))

    return beat


class WorkerProgram:
    """See `clearl.runtimes.programs.Program`."""

    def __init__(self, sink: MessageSink, setup: Setup, endpoints: Endpoints) -> None:
        torch.set_num_threads(1)
        self.watch = Stopwatch()
        factory = make_factory(setup)
        network = factory.network()
        self.weights = endpoints.weights(network)
        self.pairs = endpoints.pairs(factory.layout, len(setup.slots), factory.draws)
        beat = heartbeat(sink)
        timed = cast(PolicyNetwork, TimedNetwork(network, self.watch, beat))
        suite = TimedSuite(factory.suite, beating(self.watch, beat), lambda building: sink.send(Alive(building)))
        self.worker = factory.worker(setup.slots, timed, incarnation=setup.incarnation, suite=suite)
        sequences = _restore(self.worker, setup, self.pairs)
        self.ready = Ready(sequences, sum(shard.counters()["lost"] for shard in self.worker.shards))
        self._rounds = 0

    def handle(self, message: Message) -> Iterator[Message]:
        if isinstance(message, Produce):
            yield self._produce(message)
            with self.watch("codec"):
                # The learner reads meanwhile; if this process exits before the insertion is done, the next one does it.
                self.worker.remember(self.pairs.new)
        else:
            assert isinstance(message, Sync), message
            for shard in self.worker.shards:
                shard.sync()
            yield Synced()

    def close(self) -> None:
        self.worker.close()

    def _produce(self, message: Produce) -> Produced:
        pairs, worker = self.pairs, self.worker
        self._rounds += 1
        if self._rounds % _ROUNDS_TO_RECLAIM == 0:
            with self.watch("codec"):
                # All that was reported has been read and inserted: a restart goes back to here and never further.
                for shard, sequence in zip(worker.shards, self.ready.sequences, strict=bool(worker.shards)):
                    shard.set_floor(sequence)
        with self.watch("weights"):
            version, _ = self.weights.read()
        with self.watch("copying"):
            pairs.sequences[:] = 0
            episodes = worker.act(message.tasks, pairs.new, message.frames)
        with self.watch("codec"):
            pairs.put_replay(worker.recall())
            by_task = worker.replay_by_task() if message.by_task else {}
        self.ready = Ready(tuple(sequence + 1 for sequence in self.ready.sequences), 0)
        pairs.sequences[:] = self.ready.sequences
        ended, sequences = sum_episodes(episodes), self.ready.sequences
        faults = describe_faults(worker.take_faults())
        return Produced(version, ended, sequences, worker.replay_counters(), self.watch.take(), faults, by_task)


def _restore(worker: Worker, setup: Setup, pairs: PairWriter) -> tuple[int, ...]:
    """Restore the shards to the parent's position; return the next sequence of each slot."""
    if not worker.shards:
        return setup.sequences
    reached = []
    for index, (shard, sequence) in enumerate(zip(worker.shards, setup.sequences, strict=True)):
        there = shard.recovered_next_sequence()
        if there < sequence == pairs.sequences[index]:  # reported, but perhaps not inserted any more
            shard.restore(sequence - 1)
            labels = labels_of(pairs.new, setup.played, setup.played_frames)
            shard.insert(pairs.new[index], labels[index] if labels else UNKNOWN)
        else:
            shard.restore(max(sequence, there) if setup.keep_unrolls_after_checkpoint else sequence)
        reached.append(shard.next_sequence)
    return tuple(reached)


class EvaluatorProgram:
    """See `clearl.runtimes.programs.Program`."""

    def __init__(self, sink: MessageSink, setup: Setup, endpoints: Endpoints) -> None:
        torch.set_num_threads(1)
        self.tasks, self.watch, self.ready = setup.tasks, Stopwatch(), Ready((), 0)
        factory = make_factory(setup)
        network = factory.network()
        self.weights = endpoints.weights(network)
        beat = heartbeat(sink)
        suite = TimedSuite(factory.suite, beating(self.watch, beat), lambda building: sink.send(Alive(building)))
        timed = cast(PolicyNetwork, TimedNetwork(network, self.watch, beat))
        self.evaluator = factory.evaluator(timed, suite=suite)

    def handle(self, message: Message) -> Iterator[Message]:
        assert isinstance(message, Evaluate), message
        version, frames = self.weights.read()
        with self.watch("copying"):
            evaluations = self.evaluator.evaluate(self.tasks, version, switch=message.switch, training=message.training)
        for done in evaluations:
            scores = done.scores, done.steps, done.column, dict(done.others), dict(done.success_rates)
            faults = describe_faults(self.evaluator.take_faults())
            yield Evaluated(done.task, *scores, version, frames, self.watch.take(), faults)

    def close(self) -> None:
        self.evaluator.close()
