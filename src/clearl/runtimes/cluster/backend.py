"""The learner's side of children that are reached by remote calls, over any transport."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from clearl.runtimes.backend import Wake
from clearl.runtimes.messages import Alive, ChannelClosed, Evaluate, Message, Produce, Setup, pack, unpack
from clearl.runtimes.runtime import RunContext
from clearl.unroll import Payload, Unroll, UnrollLayout

_BEAT_S = 0.5
KILL_TIMEOUT_S = 15.0
"""Seconds within which a killed process must have exited."""

Call = Hashable
"""A pending call."""
Ask = Callable[[Any], Any]
"""Sends a request to the driver of a run and returns its answer."""


class ActorLost(Exception):
    """The process behind a call has exited; says why, and whether that may be a fault of its own."""

    def __init__(self, why: str, *, is_fault: bool = True) -> None:
        super().__init__(why)
        self.is_fault = is_fault


class RemoteActor(Protocol):
    """A process somewhere that holds an object and answers calls of its methods."""

    def call(self, method: str, *given: Any) -> Call:
        """Call a method without waiting for the answer. Calls are answered one after the other."""
        ...

    def call_aside(self, method: str, *given: Any) -> Call:
        """Call a method in another thread, beside the call that is under way."""
        ...

    def kill(self) -> None: ...


class Transport(Protocol):
    """Carries calls to actors and answers back."""

    def arrived(self, calls: Sequence[Call], wait_s: float) -> list[Call]:
        """Return the calls that were answered, or never will be; waits up to `wait_s` seconds for the first."""
        ...

    def answer(self, call: Call) -> Any:
        """Return the answer of an arrived call; raise what the method raised, or `ActorLost`."""
        ...

    def publish(self, value: Any) -> Any:
        """Return a handle to pass to calls in place of `value`, which is then sent to every machine once."""
        ...


@dataclass(frozen=True)
class NodeAffinity:
    """The node where a worker's replay is."""

    node: str
    may_be_full: bool
    """True if others may have taken its place there."""


@dataclass(frozen=True)
class ActorRequest:
    """A request to the driver: an actor for a worker or an evaluator."""

    name: str
    is_worker: bool
    affinity: NodeAffinity | None


@dataclass(frozen=True)
class ClusterPlan:
    """The workers that survive a learner's restart."""

    workers: int
    replay_nodes: Mapping[str, str]
    """The node that holds the replay of each worker, where one does."""
    bundle: Any
    """A `clearl.runtimes.cluster.hosted.RunBundle`, published."""


class PublishedWeights:
    """The newest weights; see `clearl.runtimes.backend.WeightStore`."""

    def __init__(self, size: int, publish: Callable[[Any], Any]) -> None:
        self._next, self._publish = np.zeros(size, np.float32), publish
        self.published: tuple[int, int, Any] = (0, 0, None)

    def buffer(self) -> np.ndarray:
        return self._next

    def publish(self, version: int, frames: int) -> None:
        self.published = (version, frames, self._publish(self._next))

    def close(self) -> None:
        self.published = (0, 0, None)


class ReceivedPairs:
    """The pairs of one worker's last answer, kept by the transport: they outlive the worker."""

    def __init__(self) -> None:
        self._received: tuple[Unroll, Sequence[Payload | None]] | None = None

    @property
    def new(self) -> Unroll:
        assert self._received is not None, "the worker has not answered yet"
        return self._received[0]

    @property
    def replay(self) -> Sequence[Payload | None]:
        assert self._received is not None, "the worker has not answered yet"
        return self._received[1]

    def receive(self, new: Unroll, replay: Sequence[Payload | None]) -> None:
        self._received = new, replay

    def close(self) -> None:
        self._received = None


class ActorProcess:
    """A `HostedProgram` with at most one call under way; see `clearl.runtimes.backend.RemoteProcess`."""

    def __init__(
        self,
        transport: Transport,
        place: Callable[[Setup], RemoteActor],
        placed: Callable[[str, str], None],
        bundle: Any,
    ):
        self._transport, self._place, self._placed, self._bundle = transport, place, placed, bundle
        self._call: Call | None = None
        self._asked: Call | None = None
        self._asked_at, self._beats = 0.0, 0
        self._exit_reason, self._is_fault = "died", True
        self._begun: RemoteActor | None = None
        self._name, self._shared = "", tuple[Any, ...]()
        self.node: str
        self.pid: int | None
        self.node, self.pid = "", None

    @property
    def _actor(self) -> RemoteActor:
        assert self._begun is not None, "begin comes first"
        return self._begun

    @property
    def awaited(self) -> list[Call]:
        return [] if self._call is None else [self._call]

    def begin(self, setup: Setup, shared: Sequence[Any]) -> None:
        self._name, self._shared = setup.name, tuple(shared)
        self._begun = self._place(setup)
        self._call = self._actor.call("begin", pack(setup), self._bundle)

    def send(self, message: Message) -> None:
        version, frames, weights = self._shared[-1].published
        if not isinstance(message, Produce | Evaluate):
            weights = None
        self._asked_at = time.monotonic()
        self._call = self._actor.call("handle", pack(message), version, frames, weights)

    def poll(self) -> list[Message]:
        if self._call is None:
            return []
        if not self._transport.arrived(self.awaited, 0.0):
            return self._pulse()
        answers, pairs, where = self._answer(self._call)
        self._call = None
        if where is not None:
            self.node, self.pid = where
            self._placed(self._name, self.node)
        if pairs is not None:
            self._shared[0].receive(*pairs)
        return [unpack(answer) for answer in answers]

    def _pulse(self) -> list[Message]:
        """Ask now and then for the heartbeat of a pending call, without waiting for the answer."""
        now = time.monotonic()
        if self._asked is None:
            if now - self._asked_at > _BEAT_S:
                self._asked, self._asked_at = self._actor.call_aside("beats"), now
            return []
        if not self._transport.arrived([self._asked], 0.0):
            return []
        beats, building = self._answer(self._asked)
        before, self._beats, self._asked = self._beats, beats, None
        return [Alive(building)] if beats != before else []

    def _answer(self, call: Call) -> Any:
        try:
            return self._transport.answer(call)
        except Exception as error:  # errors of the child's own work come as answers: here the process itself failed
            lost = error if isinstance(error, ActorLost) else ActorLost(f"died: {error!r}")
            self._exit_reason, self._is_fault = str(lost), lost.is_fault
            raise ChannelClosed from error

    def end(self, patience_s: float = 0.0) -> int | None:
        """End the process for certain, so that another can open its shards."""
        if patience_s and self.awaited:
            self._transport.arrived(self.awaited, patience_s)
        self._actor.kill()
        if self.awaited:
            self._transport.arrived(self.awaited, KILL_TIMEOUT_S)
        self._asked = None
        return None

    def exit_reason(self, code: int | None) -> tuple[str, bool]:
        """Return why it exited, and whether the process itself is to blame: it is, unless it went with its node."""
        return self._exit_reason, self._is_fault

    def output(self) -> str:
        return ""


class ClusterBackend:
    """Keeps each worker on the node where its replay is; see `clearl.runtimes.backend.Backend`."""

    keep_unrolls_after_checkpoint = False  # a node may hold files of an earlier run at the same path

    def __init__(self, transport: Transport, cluster: ClusterPlan, context: RunContext, ask: Ask) -> None:
        self._transport, self._bundle, self._ask = transport, cluster.bundle, ask
        self.workers = cluster.workers
        self.evaluators: Sequence[tuple[str, ...]] = [(task,) for task in context.plan.evaluate]
        self._affinities = {name: NodeAffinity(node, may_be_full=True) for name, node in cluster.replay_nodes.items()}
        self._children: dict[ActorProcess, Wake] = {}

    def take(self, wake: Wake, *, background: bool) -> ActorProcess:
        child = ActorProcess(self._transport, self._place, self._settle, self._bundle)
        self._children[child] = wake
        return child

    def prepare(self, *, background: bool) -> None: ...

    def unregister(self, child: ActorProcess) -> None:
        del self._children[child]

    def wait(self, wait_s: float) -> list[Wake]:
        awaited = {call: wake for child, wake in self._children.items() for call in child.awaited}
        if not awaited:
            time.sleep(wait_s)
            return []
        return [awaited[call] for call in self._transport.arrived(list(awaited), wait_s)]

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> ReceivedPairs:
        return ReceivedPairs()

    def weight_store(self, size: int) -> PublishedWeights:
        return PublishedWeights(size, self._transport.publish)

    def _place(self, setup: Setup) -> RemoteActor:
        return self._ask(ActorRequest(setup.name, bool(setup.slots), self._affinities.get(setup.name)))

    def _settle(self, name: str, node: str) -> None:
        self._affinities[name] = NodeAffinity(node, may_be_full=False)
