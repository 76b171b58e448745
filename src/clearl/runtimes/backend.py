"""The seam between the learner's loop and the processes of a run: starting them, messages, shared data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from clearl.nets.network import PolicyNetwork
from clearl.runtimes.messages import Message, Setup
from clearl.unroll import Payload, Unroll, UnrollLayout

Wake = Callable[[], None]


class PairReader(Protocol):
    """Reads the pairs of one worker; reported pairs stay readable whatever happens to the worker."""

    @property
    def new(self) -> Unroll: ...

    @property
    def replay(self) -> Sequence[Payload | None]: ...

    def close(self) -> None: ...


class WeightStore(Protocol):
    """Publishes the learner's weights to children."""

    def buffer(self) -> np.ndarray:
        """Return the array for the next weights, [size] float32."""
        ...

    def publish(self, version: int, frames: int) -> None:
        """Publish what was written into `buffer`."""
        ...

    def close(self) -> None: ...


class RemoteProcess(Protocol):
    """A child process that handles one message at a time."""

    def begin(self, setup: Setup, shared: Sequence[Any]) -> None:
        """Send the setup message; `shared` are the backend's own pairs and weight store, the weight store last."""
        ...

    @property
    def pid(self) -> int | None: ...

    def send(self, message: Message) -> None: ...

    def poll(self) -> list[Message]:
        """Return the messages that have arrived; raise `ChannelClosed` once the process has exited."""
        ...

    def end(self, patience_s: float = 0.0) -> int | None:
        """End the process for certain; return its exit code where there is one."""
        ...

    def exit_reason(self, code: int | None) -> tuple[str, bool]:
        """Return why it exited, and whether the process itself is to blame; called after `end`, with its exit code."""
        ...

    def output(self) -> str:
        """Return the end of its output, where that is known."""
        ...


class Backend(Protocol):
    """Starts and reaches the children of one run."""

    workers: int
    evaluators: Sequence[tuple[str, ...]]
    """The tasks of each evaluator."""
    keep_unrolls_after_checkpoint: bool
    """True if a resumed run keeps the unrolls that its shards got after the checkpoint."""

    def take(self, wake: Wake, *, background: bool) -> RemoteProcess:
        """Return a new child; `wait` returns `wake` whenever it has sent a message.

        `background`: training does not wait for it, so it runs at a lower priority.
        """
        ...

    def prepare(self, *, background: bool) -> None:
        """Start a spare process: a child of this kind has exited, and more may follow."""
        ...

    def unregister(self, child: Any) -> None:
        """Stop waiting for messages of `child`."""
        ...

    def wait(self, wait_s: float) -> list[Wake]:
        """Wait up to `wait_s` seconds until a child has sent a message."""
        ...

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> PairReader:
        """Return the reader for the pairs of a worker with `slots` slots, each with `draws` replayed unrolls."""
        ...

    def weight_store(self, size: int) -> WeightStore: ...


class MessageSink(Protocol):
    """Takes messages that a child sends while it works."""

    def send(self, message: Message) -> None: ...


class Connection(MessageSink, Protocol):
    """A child's end of its connection."""

    def receive(self) -> Message: ...


class WeightSource(Protocol):
    """Brings weights of the learner into a network."""

    def read(self) -> tuple[int, int]:
        """Load the newest weights; return their (updates, frames)."""
        ...


class PairWriter(Protocol):
    """Takes the pairs of a worker, which fills `new` in place."""

    new: Unroll
    sequences: np.ndarray
    """[slots] int64: unrolls of each slot up to the one in `new`, as it was reported; 0 while that is being made."""

    def put_replay(self, payloads: Sequence[Payload | None]) -> None:
        """Take the replayed halves, as `Worker.recall` returns them."""
        ...


class Endpoints(Protocol):
    """Makes a child's ends of what it shares with the learner."""

    def weights(self, network: PolicyNetwork) -> WeightSource: ...

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> PairWriter: ...
