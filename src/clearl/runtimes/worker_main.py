"""The program of a worker process: act for one unroll when told to, put the pairs into shared memory, say so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch

from clearl.nets.network import PolicyNetwork
from clearl.nets.weights import FlatWeights
from clearl.registry import load_entry
from clearl.runtimes.child import Link
from clearl.runtimes.job import Parts
from clearl.runtimes.messages import Alive, Close, Produce, Produced, Ready, Setup, Sync, Synced
from clearl.runtimes.shared import PairBlock, SharedBlock, WeightBoard
from clearl.runtimes.timing import Stopwatch, TimedNetwork, TimedSuite
from clearl.worker import Worker

_ALIVE_EVERY_S = 0.5


def run(link: Link, setup: Setup, descriptors: Sequence[int]) -> None:
    """Work until told to close."""
    program = _WorkerProgram(link, setup, descriptors)
    try:
        program.loop()
    finally:
        program.worker.close()


class _WorkerProgram:
    def __init__(self, link: Link, setup: Setup, descriptors: Sequence[int]) -> None:
        torch.set_num_threads(1)
        self.link, self.watch = link, Stopwatch()
        parts = make_parts(setup)
        network = parts.network()
        self.weights = WeightReader(network, descriptors[1])
        pairs = SharedBlock.received(descriptors[0], PairBlock.nbytes(parts.layout, len(setup.slots)))
        self.pairs = PairBlock(pairs, parts.layout, len(setup.slots))
        timed = cast(PolicyNetwork, TimedNetwork(network, self.watch, heartbeat(link)))
        self.worker = parts.worker(setup.slots, timed, incarnation=setup.incarnation)
        actor = self.worker.actor
        actor.suite = TimedSuite(actor.suite, self.watch, lambda: link.send(Alive(building=True)))
        self.sequences = _restore(self.worker, setup)

    def loop(self) -> None:
        self.link.send(Ready(self.sequences, sum(shard.counters()["lost"] for shard in self.worker.shards)))
        while True:
            with self.watch("waiting"):
                message = self.link.receive()
            if isinstance(message, Produce):
                self.link.send(self._produce(message))
            elif isinstance(message, Sync):
                for shard in self.worker.shards:
                    shard.sync()
                self.link.send(Synced())
            else:
                assert isinstance(message, Close), message
                return

    def _produce(self, message: Produce) -> Produced:
        pairs, worker = self.pairs, self.worker
        with self.watch("codec"):
            # All that stands in the block has been read, so a restart goes back to here and never further.
            for shard, sequence in zip(worker.shards, self.sequences, strict=bool(worker.shards)):
                shard.set_floor(sequence)
        with self.watch("weights"):
            version, _ = self.weights.read()
        with self.watch("copying"):
            episodes = worker.act(message.tasks, pairs.new)
        with self.watch("codec"):
            worker.remember(pairs.new, pairs.replay, pairs.has_replay)
        self.sequences = tuple(sequence + 1 for sequence in self.sequences)
        return Produced(version, len(episodes), self.sequences, worker.replay_counters(), self.watch.take())


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


def make_parts(setup: Setup) -> Parts:
    """The parts of the run, made again from its config."""
    return load_entry(setup.entry)(setup.config, Path(setup.run_dir))


def heartbeat(link: Link) -> Callable[[], None]:
    """A function to call often; every so often it tells the parent that work goes on."""
    last = time.monotonic()

    def beat() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _ALIVE_EVERY_S:
            last = now
            link.send(Alive(building=False))

    return beat


def _restore(worker: Worker, setup: Setup) -> tuple[int, ...]:
    """Take the shards to where the parent left off; the unrolls that each slot is good for."""
    if not worker.shards:
        return setup.sequences
    reached = []
    for shard, sequence in zip(worker.shards, setup.sequences, strict=True):
        there = shard.recovered_next_sequence() if setup.keeps_later else 0
        shard.restore(max(sequence, there))
        reached.append(shard.next_sequence)
    return tuple(reached)
