"""A worker or an evaluator as an actor, and as the learner's process sees it; see `clearl.runtimes.site.Child`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from clearl.runtimes.channel import ChannelClosed
from clearl.runtimes.hosted import HostedChild
from clearl.runtimes.messages import Alive, Evaluate, Message, Produce, Setup, pack, unpack

_BEAT_S = 0.5
DEATH_S = 15.0  # Ray takes 5 s to kill a process that does not answer


class ChildActor(HostedChild):
    """A child that also tells where it is."""

    def begin(self, *told: Any) -> Any:
        return super().begin(*told), ray.get_runtime_context().get_node_id(), os.getpid()


class RayChild:
    """One actor, with at most one call under way. `place(setup)` makes it; `placed(name, node)` hears where."""

    def __init__(self, place: Callable[[Setup], Any], placed: Callable[[str, str], None], luggage: Any) -> None:
        self._place, self._placed, self._luggage = place, placed, luggage
        self._actor: Any = None
        self._call: Any = None
        self._asked: Any = None
        self._asked_at, self._beats = 0.0, 0
        self._death = "died"
        self.node: str
        self.pid: int | None
        self.node, self.pid = "", None

    @property
    def awaited(self) -> list[Any]:
        """What `ray.wait` can wait for."""
        return [] if self._call is None else [self._call]

    def begin(self, setup: Setup, shared: Sequence[Any]) -> None:
        self._name, self._shared = setup.name, shared
        self._actor = self._place(setup)
        self._call = self._actor.begin.remote(pack(setup), self._luggage)

    def send(self, message: Message) -> None:
        version, frames, weights = self._shared[-1].shown
        if not isinstance(message, Produce | Evaluate):
            weights = None
        self._asked_at = time.monotonic()
        self._call = self._actor.handle.remote(pack(message), version, frames, weights)

    def poll(self) -> list[Message]:
        if self._call is None:
            return []
        try:
            if not ray.wait([self._call], timeout=0)[0]:
                return self._pulse()
            answers, *more = ray.get(self._call)
        except RayError as error:
            self._death = in_words(error)
            raise ChannelClosed from error
        self._call = None
        if len(more) == 2:
            self.node, self.pid = more
            self._placed(self._name, self.node)
        elif more[0] is not None:
            self._shared[0].receive(*more[0])
        return [unpack(answer) for answer in answers]

    def _pulse(self) -> list[Message]:
        """In the midst of a call: ask now and then how far it is, without waiting for the answer."""
        now = time.monotonic()
        if self._asked is None:
            if now - self._asked_at > _BEAT_S:
                self._asked, self._asked_at = self._actor.beats.options(concurrency_group="watch").remote(), now
            return []
        if not ray.wait([self._asked], timeout=0)[0]:
            return []
        beats, building = ray.get(self._asked)
        before, self._beats, self._asked = self._beats, beats, None
        return [Alive(building)] if beats != before else []

    def end(self, patience_s: float = 0.0) -> int | None:
        """Make sure that it has gone, so that another can open its shards."""
        if patience_s and self.awaited:
            ray.wait(self.awaited, timeout=patience_s)
        ray.kill(self._actor)
        if self.awaited:
            ray.wait(self.awaited, timeout=DEATH_S)
        self._asked = None
        return None

    def cause_of_death(self, code: int | None) -> tuple[str, bool]:
        """Ray cannot tell who ended a process: none of it counts as the worker's own fault."""
        return self._death, False

    def output(self) -> str:
        return ""


def in_words(error: RayError) -> str:
    """The one sentence of Ray's message that says why."""
    text = " ".join(str(error).split())
    found = re.search(r"because (its .*?has died|the actor's .*?died|.*?)(\.|$)", text)
    return f"died: {found[1]}" if found else f"died: {text[:200]}"
