"""The seam between a run and the place where its children live: how they are started, heard, and handed data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from clearl.nets.network import PolicyNetwork
from clearl.runtimes.messages import Message, Setup
from clearl.unroll import Payload, Unroll, UnrollLayout

Wake = Callable[[], None]


class Pairs(Protocol):
    """Where the pairs of one worker can be read; what was reported stays there whatever happens to the worker."""

    new: Unroll

    @property
    def replay(self) -> Sequence[Payload | None]: ...

    def close(self) -> None: ...


class Board(Protocol):
    """Where the learner shows weights to children."""

    def next_place(self) -> np.ndarray:
        """Where the next weights are to be put, [size] float32."""
        ...

    def show(self, version: int, frames: int) -> None:
        """Show what was put into `next_place`."""
        ...

    def close(self) -> None: ...


class Child(Protocol):
    """A process somewhere that does one thing at a time."""

    def begin(self, setup: Setup, shared: Sequence[Any]) -> None:
        """Say what to be; `shared` are the site's own pairs and board, the board last."""
        ...

    @property
    def pid(self) -> int | None: ...

    def send(self, message: Message) -> None: ...

    def poll(self) -> list[Message]:
        """What was said; raises `ChannelClosed` when it has gone."""
        ...

    def end(self, patience_s: float = 0.0) -> int | None:
        """Make sure that it has gone; its exit code where there is one."""
        ...

    def cause_of_death(self, code: int | None) -> tuple[str, bool]:
        """Why it has gone, in words, and whether it brought that about itself. After `end`, with its exit code."""
        ...

    def output(self) -> str:
        """The last of what it printed, where that is known."""
        ...


class Site(Protocol):
    """Where the children of one run live."""

    workers: int
    evaluators: Sequence[tuple[str, ...]]
    """The tasks of each evaluator."""
    keeps_later: bool
    """Whether a resumed run takes up what its shards hold from after the checkpoint."""

    def take(self, wake: Wake) -> Child:
        """A new child to begin with; `listen` gives `wake` back whenever it has something to say."""
        ...

    def prepare(self) -> None:
        """A child has died: more may follow."""
        ...

    def let_go(self, child: Any) -> None:
        """Listen to it no more."""
        ...

    def listen(self, wait_s: float) -> list[Wake]:
        """Wait until a child says something, but no longer than that."""
        ...

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> Pairs:
        """A place for the pairs of a worker with so many slots, each with `draws` replayed unrolls."""
        ...

    def board(self, size: int) -> Board: ...


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

    new: Unroll
    sequences: np.ndarray
    """[slots] int64: unrolls of each slot up to the one in `new`, as it was reported; 0 while that is being made."""

    def put_replay(self, payloads: Sequence[Payload | None]) -> None:
        """Those of `Worker.recall`."""
        ...


class Places(Protocol):
    """What a child shares with the learner."""

    def weights(self, network: PolicyNetwork) -> Weights: ...

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> OwnPairs: ...
