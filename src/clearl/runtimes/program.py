"""What a child does, apart from how it is reached: the seam between its work and the runtime that placed it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from clearl.nets.network import PolicyNetwork
from clearl.registry import load_entry
from clearl.runtimes.job import Parts
from clearl.runtimes.messages import Alive, Close, Message, Ready, Setup
from clearl.runtimes.timing import Stopwatch
from clearl.types import Payload, Rows, UnrollLayout

_ALIVE_EVERY_S = 0.5


class Outlet(Protocol):
    """Takes what a child says in the midst of work."""

    def send(self, message: Message) -> None: ...


class Link(Outlet, Protocol):
    """A child's end of its connection."""

    def receive(self) -> Message: ...


class Weights(Protocol):
    """Brings weights of the learner into a network."""

    def read(self) -> tuple[int, int]:
        """Take the newest weights; their (updates, frames)."""
        ...


class OwnPairs(Protocol):
    """Where a worker puts its pairs: it fills `new` in place."""

    new: Rows
    sequences: np.ndarray
    """[slots] int64: unrolls of each slot up to the one in `new`, as it was reported; 0 while that is being made."""

    def put_replay(self, payloads: Sequence[Payload | None]) -> None:
        """One for each slot, None where it has nothing to replay."""
        ...


class Places(Protocol):
    """What a child shares with the learner."""

    def weights(self, network: PolicyNetwork) -> Weights: ...

    def pairs(self, layout: UnrollLayout, slots: int) -> OwnPairs: ...


class Program(Protocol):
    """A worker or an evaluator: made from (outlet, setup, places), then told one thing after the other."""

    ready: Ready
    """What it has to say whenever somebody begins with it: it may outlive a learner."""
    watch: Stopwatch

    def handle(self, message: Message) -> Iterator[Message]:
        """Do as told; each answer is sent as soon as it is there."""
        ...

    def close(self) -> None: ...


def serve(link: Link, program: Program) -> None:
    """Work until told to close."""
    try:
        link.send(program.ready)
        while True:
            with program.watch("waiting"):
                message = link.receive()
            if isinstance(message, Close):
                return
            for answer in program.handle(message):
                link.send(answer)
    finally:
        program.close()


def make_parts(setup: Setup) -> Parts:
    """The parts of the run, made again from its config."""
    return load_entry(setup.entry)(setup.config, Path(setup.run_dir))


def heartbeat(outlet: Outlet) -> Callable[[], None]:
    """A function to call often; every so often it says that work goes on."""
    last = time.monotonic()

    def beat() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _ALIVE_EVERY_S:
            last = now
            outlet.send(Alive(building=False))

    return beat
