"""The program of a worker process: act for one unroll when told to, put the pairs where they are read, say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch

from clearl.acting.worker import Worker
from clearl.nets.network import PolicyNetwork
from clearl.nets.weights import FlatWeights
from clearl.runtimes.child import Link
from clearl.runtimes.messages import Alive, Message, Produce, Produced, Ready, Setup, Sync, Synced
from clearl.runtimes.program import Outlet, OwnPairs, Places, heartbeat, make_parts, serve
from clearl.runtimes.shared import PairBlock, SharedBlock, WeightBoard
from clearl.runtimes.timing import Stopwatch, TimedNetwork, TimedSuite
from clearl.types import UnrollLayout, row

_ROUNDS_TO_RECLAIM = 16  # with small frames, asking each time costs as much as a tenth of replay


def run(link: Link, setup: Setup, descriptors: Sequence[int]) -> None:
    """Work until told to close."""
    serve(link, PROGRAM(link, setup, SharedPlaces(descriptors)))


class WorkerProgram:
    """See `clearl.runtimes.program.Program`."""

    def __init__(self, outlet: Outlet, setup: Setup, places: Places) -> None:
        torch.set_num_threads(1)
        self.watch = Stopwatch()
        parts = make_parts(setup)
        network = parts.network()
        self.weights = places.weights(network)
        self.pairs = places.pairs(parts.layout, len(setup.slots))
        timed = cast(PolicyNetwork, TimedNetwork(network, self.watch, heartbeat(outlet)))
        self.worker = parts.worker(setup.slots, timed, incarnation=setup.incarnation)
        actor = self.worker.actor
        actor.suite = TimedSuite(actor.suite, self.watch, lambda: outlet.send(Alive(building=True)))
        sequences = _restore(self.worker, setup, self.pairs)
        self.ready = Ready(sequences, sum(shard.counters()["lost"] for shard in self.worker.shards))
        self._rounds = 0

    def handle(self, message: Message) -> Iterator[Message]:
        if isinstance(message, Produce):
            yield self._produce(message)
            with self.watch("codec"):
                # While the learner reads; if this process dies before it is done, the next one does it.
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
            episodes = worker.act(message.tasks, pairs.new)
        with self.watch("codec"):
            pairs.put_replay(worker.recall())
        self.ready = Ready(tuple(sequence + 1 for sequence in self.ready.sequences), 0)
        pairs.sequences[:] = self.ready.sequences
        return Produced(version, len(episodes), self.ready.sequences, worker.replay_counters(), self.watch.take())


PROGRAM = WorkerProgram


class SharedPlaces:
    """Shared memory: of a worker's pairs first, of the weights last."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        self._descriptors = descriptors

    def weights(self, network: PolicyNetwork) -> WeightReader:
        return WeightReader(network, self._descriptors[-1])

    def pairs(self, layout: UnrollLayout, slots: int) -> PairBlock:
        block = SharedBlock.received(self._descriptors[0], PairBlock.nbytes(layout, slots))
        return PairBlock(block, layout, slots)


class WeightReader:
    """Brings the weights on a board into a network."""

    def __init__(self, network: PolicyNetwork, descriptor: int) -> None:
        self._flat = FlatWeights(network)
        self._copy = np.zeros(self._flat.size, np.float32)
        block = SharedBlock.received(descriptor, WeightBoard.nbytes(self._flat.size))
        self._board = WeightBoard(block, self._flat.size)
        self._read: tuple[int, int] | None = None

    def read(self) -> tuple[int, int]:
        """Take the newest weights; their (updates, frames)."""
        if self._read is None or self._board.version() != self._read[0]:
            self._read = self._board.read_into(self._copy)
            self._flat.read_from(self._copy)
        return self._read


def _restore(worker: Worker, setup: Setup, pairs: OwnPairs) -> tuple[int, ...]:
    """Take the shards to where the parent left off; the unrolls that each slot is good for."""
    if not worker.shards:
        return setup.sequences
    reached = []
    for index, (shard, sequence) in enumerate(zip(worker.shards, setup.sequences, strict=True)):
        there = shard.recovered_next_sequence()
        if there < sequence == pairs.sequences[index]:  # reported, but perhaps not inserted any more
            shard.restore(sequence - 1)
            shard.insert(row(pairs.new, index))
        else:
            shard.restore(max(sequence, there) if setup.keeps_later else sequence)
        reached.append(shard.next_sequence)
    return tuple(reached)
