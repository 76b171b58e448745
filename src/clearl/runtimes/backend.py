"""The seam between a run and the place where its children live: how they are started, heard, and handed data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from clearl.nets.network import PolicyNetwork
from clearl.runtimes.messages import Message, Setup
from clearl.unroll import Payload, Unroll, UnrollLayout

Wake = Callable[[], None]


class PairReader(Protocol):
    """Where the pairs of one worker can be read; what was reported stays there whatever happens to the worker."""

    @property
    def new(self) -> Unroll: ...

    @property
    def replay(self) -> Sequence[Payload | None]: ...

    def close(self) -> None: ...


class WeightStore(Protocol):
    """Where the learner shows weights to children."""

    def buffer(self) -> np.ndarray:
        """Where the next weights are to be put, [size] float32."""
        ...

    def publish(self, version: int, frames: int) -> None:
        """Show what was put into `next_place`."""
        ...

    def close(self) -> None: ...


class RemoteProcess(Protocol):
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

    def exit_reason(self, code: int | None) -> tuple[str, bool]:
        """Why it has gone, in words, and whether it brought that about itself. After `end`, with its exit code."""
        ...

    def output(self) -> str:
        """The last of what it printed, where that is known."""
        ...


class Backend(Protocol):
    """Where the children of one run live."""

    workers: int
    evaluators: Sequence[tuple[str, ...]]
    """The tasks of each evaluator."""
    keep_unrolls_after_checkpoint: bool
    """Whether a resumed run takes up what its shards hold from after the checkpoint."""

    def take(self, wake: Wake) -> RemoteProcess:
        """A new child to begin with; `listen` gives `wake` back whenever it has something to say."""
        ...

    def prepare(self) -> None:
        """A child has died: more may follow."""
        ...

    def unregister(self, child: Any) -> None:
        """Listen to it no more."""
        ...

    def wait(self, wait_s: float) -> list[Wake]:
        """Wait until a child says something, but no longer than that."""
        ...

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> PairReader:
        """A place for the pairs of a worker with so many slots, each with `draws` replayed unrolls."""
        ...

    def weight_store(self, size: int) -> WeightStore: ...


class MessageSink(Protocol):
    """Takes what a child says in the midst of work."""

    def send(self, message: Message) -> None: ...


class Connection(MessageSink, Protocol):
    """A child's end of its connection."""

    def receive(self) -> Message: ...


class WeightSource(Protocol):
    """Brings weights of the learner into a network."""

    def read(self) -> tuple[int, int]:
        """Take the newest weights; their (updates, frames)."""
        ...


class PairWriter(Protocol):
    """Where a worker puts its pairs: it fills `new` in place."""

    new: Unroll
    sequences: np.ndarray
    """[slots] int64: unrolls of each slot up to the one in `new`, as it was reported; 0 while that is being made."""

    def put_replay(self, payloads: Sequence[Payload | None]) -> None:
        """Those of `Worker.recall`."""
        ...


class Endpoints(Protocol):
    """What a child shares with the learner."""

    def weights(self, network: PolicyNetwork) -> WeightSource: ...

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> PairWriter: ...
