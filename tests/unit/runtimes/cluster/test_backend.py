"""Children behind calls and answers, as the learner sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from thread_actors import DEATH, ThreadActor, ThreadTransport

from clearl.runtimes.cluster.backend import (
    ActorLost,
    ActorProcess,
    ActorRequest,
    ClusterBackend,
    ClusterPlan,
    NodeAffinity,
)
from clearl.runtimes.messages import Alive, ChannelClosed, Message, Produce, Ready, Setup, Sync, Synced, pack

READY = Ready((), 0)
PAIRS = ({"reward": np.ones(2)}, [b"packed", None])


class Host:
    """The far end of a child that sends what a test tells it to."""

    def __init__(self, *, seconds: float = 0.0, error: Exception | None = None, begin_error: Exception | None = None):
        self.seconds, self.error, self.begin_error = seconds, error, begin_error
        self.count, self.given = 0, list[Any]()

    def begin(self, setup: Any, bundle: Any) -> Any:
        if self.begin_error:
            raise self.begin_error
        return [pack(READY)], None, ("node-1", 42)

    def handle(self, message: Any, *given: Any) -> Any:
        self.given.append(given)
        time.sleep(self.seconds)
        if self.error:
            raise self.error
        return [pack(Synced())], PAIRS if given[-1] is not None else None, None

    def beats(self) -> tuple[int, bool]:
        self.count += 1
        return self.count, True


def make(host: Host, *, name: str = "worker-0") -> tuple[ClusterBackend, ActorProcess, list[ActorRequest]]:
    """Make a backend with one child that has begun."""
    asked = list[ActorRequest]()

    def ask(request: ActorRequest) -> ThreadActor:
        asked.append(request)
        return ThreadActor(host)

    context: Any = SimpleNamespace(plan=SimpleNamespace(evaluate=("a", "b")))
    backend = ClusterBackend(ThreadTransport(), ClusterPlan(1, {"worker-0": "node-0"}, "bundle"), context, ask)
    child = backend.take(lambda: None, background=False)
    pairs, weight_store = backend.pairs(None, 2, 1), backend.weight_store(3)  # pyright: ignore[reportArgumentType]
    weight_store.buffer()[:] = 7
    weight_store.publish(5, 100)
    child.begin(Setup(name, "", "", "", "", 0, slots=(0, 1)), [pairs, weight_store])
    return backend, child, asked


def poll(backend: ClusterBackend, child: ActorProcess, until: type[Message], within_s: float = 5.0) -> list[Message]:
    heard, deadline = list[Message](), time.monotonic() + within_s
    while not any(isinstance(message, until) for message in heard):
        assert time.monotonic() < deadline
        backend.wait(0.05)
        heard += child.poll()
    return heard


def test_weights_go_with_leave_to_act_and_pairs_come_back() -> None:
    host = Host()
    backend, child, _ = make(host)
    assert poll(backend, child, Ready) == [READY]
    assert (child.node, child.pid) == ("node-1", 42)
    child.send(Sync())
    poll(backend, child, Synced)
    assert host.given[-1] == (5, 100, None)
    child.send(Produce(("a", "a")))
    poll(backend, child, Synced)
    assert host.given[-1][-1].tolist() == [7, 7, 7]
    received: Any = child._shared[0]
    assert received.new["reward"].tolist() == [1, 1] and received.replay == [b"packed", None]


def test_signs_of_life_are_heard_in_the_midst_of_work() -> None:
    backend, child, _ = make(Host(seconds=1.5))
    poll(backend, child, Ready)
    child.send(Sync())
    heard = poll(backend, child, Synced)
    assert 1 <= len(heard) - 1 <= 3 and set(heard[:-1]) == {Alive(building=True)}


def test_a_child_that_no_longer_progresses_gives_no_sign() -> None:
    host = Host(seconds=1.5)
    backend, child, _ = make(host)
    poll(backend, child, Ready)
    host.beats = lambda: (1, False)
    child.send(Sync())
    assert poll(backend, child, Synced) == [Alive(building=False), Synced()]


@pytest.mark.parametrize(
    ("error", "words", "is_fault"),
    [
        (ActorLost("died: its node has gone", is_fault=False), "died: its node has gone", False),
        (ActorLost("died: its process has gone"), "died: its process has gone", True),
        (OSError("disk full"), "died: OSError('disk full')", True),
    ],
)
def test_a_lost_child_says_why_and_whether_it_is_to_blame(error: Exception, words: str, is_fault: bool) -> None:
    backend, child, _ = make(Host(error=error))
    poll(backend, child, Ready)
    child.send(Sync())
    with pytest.raises(ChannelClosed):
        poll(backend, child, Synced)
    assert child.exit_reason(child.end()) == (words, is_fault)


def test_a_killed_child_is_heard_no_more() -> None:
    backend, child, _ = make(Host(seconds=1.0))
    poll(backend, child, Ready)
    child.send(Sync())
    child.end()
    with pytest.raises(ChannelClosed):
        child.poll()
    assert child.exit_reason(None) == (DEATH, True)


def test_a_worker_goes_back_to_its_replay_and_from_then_on_to_where_it_was() -> None:
    backend, child, asked = make(Host())
    assert asked == [ActorRequest("worker-0", True, NodeAffinity("node-0", may_be_full=True))]
    poll(backend, child, Ready)
    again = backend.take(lambda: None, background=False)
    again.begin(Setup("worker-0", "", "", "", "", 1, slots=(0, 1)), child._shared)
    assert asked[-1] == ActorRequest("worker-0", True, NodeAffinity("node-1", may_be_full=False))
    assert make(Host(), name="worker-1")[2] == [ActorRequest("worker-1", True, None)]
    assert backend.evaluators == [("a",), ("b",)]


def test_a_site_wakes_for_those_who_have_something_to_say() -> None:
    slow, quick = Host(seconds=5.0), Host()
    woken = list[str]()
    context: Any = SimpleNamespace(plan=SimpleNamespace(evaluate=()))
    hosts: Iterator[Host] = iter((slow, quick))
    backend = ClusterBackend(ThreadTransport(), ClusterPlan(2, {}, None), context, lambda _: ThreadActor(next(hosts)))
    weight_store = backend.weight_store(1)
    weight_store.publish(0, 0)
    for name in ("slow", "quick"):
        child = backend.take(lambda name=name: woken.append(name), background=False)
        child.begin(Setup(name, "", "", "", "", 0), [weight_store])
        poll(backend, child, Ready)
        child.send(Sync())
    for wake in backend.wait(2.0):
        wake()
    assert woken == ["quick"]


def test_without_anyone_under_way_a_backend_waits_as_it_was_told() -> None:
    context: Any = SimpleNamespace(plan=SimpleNamespace(evaluate=()))
    backend = ClusterBackend(ThreadTransport(), ClusterPlan(0, {}, None), context, lambda _: None)
    begun = time.monotonic()
    assert backend.wait(0.2) == [] and time.monotonic() - begun >= 0.2


def test_a_worker_goes_where_most_of_its_replay_is() -> None:
    from clearl.runtimes.cluster.hosted import replay_nodes

    shares = [[0, 1], [2, 3]]
    assert replay_nodes({"a": {0, 1, 2, 3}, "b": {2}}, shares) == {"worker-0": "a", "worker-1": "a"}
    assert replay_nodes({"a": {0, 1}, "b": {0, 1}}, shares) == {}, "all see the same disk"
    assert replay_nodes({"a": {0}}, shares) == {"worker-0": "a"}


@pytest.fixture(autouse=True)
def _quick_beats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("clearl.runtimes.cluster.backend._BEAT_S", 0.4)
