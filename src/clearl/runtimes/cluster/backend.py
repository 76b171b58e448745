"""Children reached by calls and answers, as the learner's process sees them; who carries the calls stays open."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from clearl.runtimes.backend import Wake
from clearl.runtimes.messages import Alive, ChannelClosed, Evaluate, Message, Produce, Setup, pack, unpack
from clearl.runtimes.runtime import Job
from clearl.unroll import Payload, Unroll, UnrollLayout

_BEAT_S = 0.5
DEATH_S = 15.0
"""How long a process may take to go after it was killed."""

Call = Hashable
"""A call under way."""
Ask = Callable[[Any], Any]
"""Puts a question to the driver of a run and gives its answer."""


class ActorLost(Exception):
    """The process behind a call has gone; says why."""


class Actor(Protocol):
    """A process somewhere that holds an object and answers calls of its methods."""

    def call(self, method: str, *given: Any) -> Call:
        """Do not wait for the answer. Calls are answered one after the other."""
        ...

    def call_aside(self, method: str, *given: Any) -> Call:
        """The same in another thread, beside what is under way."""
        ...

    def kill(self) -> None: ...


class Post(Protocol):
    """Carries calls to actors and answers back."""

    def arrived(self, calls: Sequence[Call], wait_s: float) -> list[Call]:
        """Those that were answered, or never will be; waits for the first, but no longer than that."""
        ...

    def answer(self, call: Call) -> Any:
        """Of a call that has arrived. Raises what the method raised, or `ActorLost`."""
        ...

    def publish(self, value: Any) -> Any:
        """Something to give to calls in place of `value`, which then goes to every machine once."""
        ...


@dataclass(frozen=True)
class Home:
    """The node where a worker's replay is."""

    node: str
    may_be_full: bool
    """Whether others may have taken its place there."""


@dataclass(frozen=True)
class Wanted:
    """An actor for a worker or an evaluator: a question to the driver."""

    name: str
    is_worker: bool
    home: Home | None


@dataclass(frozen=True)
class Crew:
    """Whom every learner of a run works with."""

    workers: int
    homes: Mapping[str, str]
    """The node that holds the replay of each worker, where one does."""
    luggage: Any
    """A `clearl.runtimes.cluster.hosted.Luggage`, published."""


class PublishedWeights:
    """The newest weights; see `clearl.runtimes.backend.Board`."""

    def __init__(self, size: int, publish: Callable[[Any], Any]) -> None:
        self._next, self._publish = np.zeros(size, np.float32), publish
        self.shown: tuple[int, int, Any] = (0, 0, None)

    def next_place(self) -> np.ndarray:
        return self._next

    def show(self, version: int, frames: int) -> None:
        self.shown = (version, frames, self._publish(self._next))

    def close(self) -> None:
        self.shown = (0, 0, None)


class ReceivedPairs:
    """The pairs of one worker's last answer, wherever the post put them: they outlive the worker."""

    new: Unroll
    replay: Sequence[Payload | None]

    def receive(self, new: Unroll, replay: Sequence[Payload | None]) -> None:
        self.new, self.replay = new, replay

    def close(self) -> None:
        vars(self).clear()


class ActorChild:
    """A `HostedChild` with at most one call under way; see `clearl.runtimes.backend.Child`."""

    def __init__(self, post: Post, place: Callable[[Setup], Actor], placed: Callable[[str, str], None], luggage: Any):
        self._post, self._place, self._placed, self._luggage = post, place, placed, luggage
        self._call: Call | None = None
        self._asked: Call | None = None
        self._asked_at, self._beats = 0.0, 0
        self._death = "died"
        self.node: str
        self.pid: int | None
        self.node, self.pid = "", None

    @property
    def awaited(self) -> list[Call]:
        return [] if self._call is None else [self._call]

    def begin(self, setup: Setup, shared: Sequence[Any]) -> None:
        self._name, self._shared = setup.name, shared
        self._actor = self._place(setup)
        self._call = self._actor.call("begin", pack(setup), self._luggage)

    def send(self, message: Message) -> None:
        version, frames, weights = self._shared[-1].shown
        if not isinstance(message, Produce | Evaluate):
            weights = None
        self._asked_at = time.monotonic()
        self._call = self._actor.call("handle", pack(message), version, frames, weights)

    def poll(self) -> list[Message]:
        if self._call is None:
            return []
        if not self._post.arrived(self.awaited, 0.0):
            return self._pulse()
        answers, pairs, where = self._heard(self._call)
        self._call = None
        if where is not None:
            self.node, self.pid = where
            self._placed(self._name, self.node)
        if pairs is not None:
            self._shared[0].receive(*pairs)
        return [unpack(answer) for answer in answers]

    def _pulse(self) -> list[Message]:
        """In the midst of a call: ask now and then how far it is, without waiting for the answer."""
        now = time.monotonic()
        if self._asked is None:
            if now - self._asked_at > _BEAT_S:
                self._asked, self._asked_at = self._actor.call_aside("beats"), now
            return []
        if not self._post.arrived([self._asked], 0.0):
            return []
        beats, building = self._heard(self._asked)
        before, self._beats, self._asked = self._beats, beats, None
        return [Alive(building)] if beats != before else []

    def _heard(self, call: Call) -> Any:
        try:
            return self._post.answer(call)
        except Exception as error:  # what goes wrong in a child's work is an answer: here there is no sound child
            self._death = str(error) if isinstance(error, ActorLost) else f"died: {error!r}"
            raise ChannelClosed from error

    def end(self, patience_s: float = 0.0) -> int | None:
        """Make sure that it has gone, so that another can open its shards."""
        if patience_s and self.awaited:
            self._post.arrived(self.awaited, patience_s)
        self._actor.kill()
        if self.awaited:
            self._post.arrived(self.awaited, DEATH_S)
        self._asked = None
        return None

    def cause_of_death(self, code: int | None) -> tuple[str, bool]:
        """Nobody can tell who ended a process elsewhere: none of it counts as the worker's own fault."""
        return self._death, False

    def output(self) -> str:
        return ""


class ActorSite:
    """Keeps each worker on the node where its replay is; see `clearl.runtimes.backend.Site`."""

    keeps_later = False  # a node may hold files of an earlier run at the same path

    def __init__(self, post: Post, crew: Crew, job: Job, ask: Ask) -> None:
        self._post, self._luggage, self._ask = post, crew.luggage, ask
        self.workers = crew.workers
        self.evaluators: Sequence[tuple[str, ...]] = [(task,) for task in job.plan.evaluate]
        self._homes = {name: Home(node, may_be_full=True) for name, node in crew.homes.items()}
        self._children: dict[ActorChild, Wake] = {}

    def take(self, wake: Wake) -> ActorChild:
        child = ActorChild(self._post, self._place, self._settle, self._luggage)
        self._children[child] = wake
        return child

    def prepare(self) -> None: ...

    def let_go(self, child: ActorChild) -> None:
        del self._children[child]

    def listen(self, wait_s: float) -> list[Wake]:
        awaited = {call: wake for child, wake in self._children.items() for call in child.awaited}
        if not awaited:
            time.sleep(wait_s)
            return []
        return [awaited[call] for call in self._post.arrived(list(awaited), wait_s)]

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> ReceivedPairs:
        return ReceivedPairs()

    def board(self, size: int) -> PublishedWeights:
        return PublishedWeights(size, self._post.publish)

    def _place(self, setup: Setup) -> Actor:
        return self._ask(Wanted(setup.name, bool(setup.slots), self._homes.get(setup.name)))

    def _settle(self, name: str, node: str) -> None:
        self._homes[name] = Home(node, may_be_full=False)
