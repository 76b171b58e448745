"""The programs of worker and evaluator processes, independent of the backend."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch

from clearl.acting.actor import sum_episodes
from clearl.acting.worker import Worker, labels_of
from clearl.errors import EnvironmentFaultError
from clearl.nets.heads import Head
from clearl.nets.network import PolicyNetwork, StepInput, StepOutput
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
from clearl.tasks.suite import ChangesInPlay, Envs, Suite
from clearl.tasks.vectors import combine, take_faults
from clearl.types import EnvStep

if TYPE_CHECKING:  # it names the parts of the learner, which these processes need not import
    from clearl.runtimes.runtime import Factory

_ALIVE_EVERY_S = 0.5
_NICENESS = 5  # of evaluators: training goes first


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
    """Return a function to call often, which sends a heartbeat every few seconds."""
    last = time.monotonic()

    def beat() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _ALIVE_EVERY_S:
            last = now
            sink.send(Alive(building=False))

    return beat


class Stopwatch:
    """Measures seconds by name; time of an inner measurement is subtracted from the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started, outside, self._inner = time.perf_counter(), self._inner, 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + spent - self._inner
            self._inner = outside + spent

    def take(self) -> dict[str, float]:
        """Return the seconds measured since the last call."""
        seconds, self.seconds = self.seconds, {}
        return seconds


def add_seconds(total: dict[str, float], more: dict[str, float]) -> None:
    """Add the seconds of a `Stopwatch` to a running total."""
    for name, seconds in more.items():
        total[name] = total.get(name, 0.0) + seconds


Measure = Callable[[str], AbstractContextManager[None]]
"""Measures a block by name, as a `Stopwatch` does."""


def beating(watch: Stopwatch, beat: Callable[[], None]) -> Measure:
    """Return `watch` with a heartbeat before each block: a slow one must not be taken for a part of the one before."""

    def measure(name: str) -> AbstractContextManager[None]:
        beat()
        return watch(name)

    return measure


class TimedNetwork:
    """A network whose `act` is measured as inference; `tick` is called at each."""

    def __init__(self, network: PolicyNetwork, watch: Stopwatch, tick: Callable[[], None]) -> None:
        self.core_size = network.core_size
        self._network, self._watch, self._tick = network, watch, tick

    @property
    def head(self) -> Head:
        return self._network.head

    def act(self, inputs: StepInput, state: Any, *, column: str = "act") -> StepOutput:
        self._tick()
        with self._watch("inference"):
            return self._network.act(inputs, state, column=column)

    def unroll(self, inputs: StepInput, state: Any) -> StepOutput:
        return self._network.unroll(inputs, state)

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        return self._network.evaluated_columns(in_training=in_training)


class TimedSuite:
    """A suite whose environments are measured; `building` is called before (True) and after (False) some are made."""

    def __init__(self, suite: Suite, watch: Measure, building: Callable[[bool], None]) -> None:
        self.name, self.tasks, self.spec = suite.name, suite.tasks, suite.spec
        self._suite, self._watch, self._building = suite, watch, building
        if isinstance(suite, ChangesInPlay):  # who asks for a capability asks this suite, not the one inside
            self.changes_in_play, self.change = suite.changes_in_play, partial(self._change, suite.change)

    def mask(self, task: str) -> np.ndarray:
        return self._suite.mask(task)

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> Envs:
        with self._watch("environment"):
            self._building(True)
            envs = self._suite.make(task, num_envs=num_envs, seed=seed, training=training)
        self._building(False)  # from here on a hang is that of a step
        return _TimedEnvs(envs, self._watch)

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        return self._suite.render(task, frame)

    def _change(self, change: Callable[[Envs, str], Envs], envs: Envs, task: str) -> Envs:
        assert isinstance(envs, _TimedEnvs)
        with self._watch("environment"):
            return _TimedEnvs(change(envs._envs, task), self._watch)


class _TimedEnvs:
    def __init__(self, envs: Envs, watch: Measure) -> None:
        self.num_envs = envs.num_envs
        self._envs, self._watch = envs, watch
        if hasattr(envs, "combined"):
            self.combined = self._combined
        if (allowed_actions := getattr(envs, "allowed_actions", None)) is not None:
            self.allowed_actions = allowed_actions

    def _combined(self, seats: Sequence[tuple[_TimedEnvs, int]]) -> _TimedEnvs:
        return _TimedEnvs(combine([(timed._envs, index) for timed, index in seats]), self._watch)

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        with self._watch("environment"):
            return self._envs.reset(seed=seed)

    def step(self, actions: np.ndarray) -> EnvStep:
        with self._watch("environment"):
            return self._envs.step(actions)

    def get_state(self) -> dict[str, Any] | None:
        return self._envs.get_state()

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        return self._envs.set_state(state)

    def take_faults(self) -> list[EnvironmentFaultError]:
        return take_faults(self._envs)

    def close(self) -> None:
        self._envs.close()


_ROUNDS_TO_RECLAIM = 16  # with small frames, asking each time costs as much as a tenth of replay


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
                # The learner reads meanwhile; if this process dies before the insertion is done, the next one does it.
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
        os.nice(_NICENESS)
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
