"""Children behind calls and answers, as the learner sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from thread_actors import DEATH, ThreadActor, ThreadPost

from clearl.runtimes.cluster.backend import ActorChild, ActorLost, ActorSite, Crew, Home, Wanted
from clearl.runtimes.messages import Alive, ChannelClosed, Message, Produce, Ready, Setup, Sync, Synced, pack

READY = Ready((), 0)
PAIRS = ({"reward": np.ones(2)}, [b"packed", None])


class Host:
    """The far end of a child that says what it is told to."""

    def __init__(self, *, seconds: float = 0.0, error: Exception | None = None, begin_error: Exception | None = None):
        self.seconds, self.error, self.begin_error = seconds, error, begin_error
        self.count, self.given = 0, list[Any]()

    def begin(self, setup: Any, luggage: Any) -> Any:
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


def make(host: Host, *, name: str = "worker-0") -> tuple[ActorSite, ActorChild, list[Wanted]]:
    """A site with one child that has begun."""
    asked = list[Wanted]()

    def ask(wanted: Wanted) -> ThreadActor:
        asked.append(wanted)
        return ThreadActor(host)

    job: Any = SimpleNamespace(plan=SimpleNamespace(evaluate=("a", "b")))
    site = ActorSite(ThreadPost(), Crew(1, {"worker-0": "node-0"}, "luggage"), job, ask)
    child = site.take(lambda: None)
    pairs, board = site.pairs(None, 2, 1), site.board(3)  # pyright: ignore[reportArgumentType]
    board.next_place()[:] = 7
    board.show(5, 100)
    child.begin(Setup(name, "", "", "", "", 0, slots=(0, 1)), [pairs, board])
    return site, child, asked


def hear(site: ActorSite, child: ActorChild, until: type[Message], within_s: float = 5.0) -> list[Message]:
    heard, deadline = list[Message](), time.monotonic() + within_s
    while not any(isinstance(message, until) for message in heard):
        assert time.monotonic() < deadline
        site.listen(0.05)
        heard += child.poll()
    return heard


def test_weights_go_with_leave_to_act_and_pairs_come_back() -> None:
    host = Host()
    site, child, _ = make(host)
    assert hear(site, child, Ready) == [READY]
    assert (child.node, child.pid) == ("node-1", 42)
    child.send(Sync())
    hear(site, child, Synced)
    assert host.given[-1] == (5, 100, None)
    child.send(Produce(("a", "a")))
    hear(site, child, Synced)
    assert host.given[-1][-1].tolist() == [7, 7, 7]
    received: Any = child._shared[0]
    assert received.new["reward"].tolist() == [1, 1] and received.replay == [b"packed", None]


def test_signs_of_life_are_heard_in_the_midst_of_work() -> None:
    site, child, _ = make(Host(seconds=1.5))
    hear(site, child, Ready)
    child.send(Sync())
    heard = hear(site, child, Synced)
    assert 1 <= len(heard) - 1 <= 3 and set(heard[:-1]) == {Alive(building=True)}


def test_a_child_that_no_longer_progresses_gives_no_sign() -> None:
    host = Host(seconds=1.5)
    site, child, _ = make(host)
    hear(site, child, Ready)
    host.beats = lambda: (1, False)
    child.send(Sync())
    assert hear(site, child, Synced) == [Alive(building=False), Synced()]


@pytest.mark.parametrize(
    ("error", "words"), [(ActorLost("died: its node has gone"), "died: its node has gone"),
                         (OSError("disk full"), "died: OSError('disk full')")],
)  # fmt: skip
def test_a_lost_child_says_why(error: Exception, words: str) -> None:
    site, child, _ = make(Host(error=error))
    hear(site, child, Ready)
    child.send(Sync())
    with pytest.raises(ChannelClosed):
        hear(site, child, Synced)
    assert child.cause_of_death(child.end()) == (words, False)


def test_a_killed_child_is_heard_no_more() -> None:
    site, child, _ = make(Host(seconds=1.0))
    hear(site, child, Ready)
    child.send(Sync())
    child.end()
    with pytest.raises(ChannelClosed):
        child.poll()
    assert child.cause_of_death(None) == (DEATH, False)


def test_a_worker_goes_back_to_its_replay_and_from_then_on_to_where_it_was() -> None:
    site, child, asked = make(Host())
    assert asked == [Wanted("worker-0", True, Home("node-0", may_be_full=True))]
    hear(site, child, Ready)
    again = site.take(lambda: None)
    again.begin(Setup("worker-0", "", "", "", "", 1, slots=(0, 1)), child._shared)
    assert asked[-1] == Wanted("worker-0", True, Home("node-1", may_be_full=False))
    assert make(Host(), name="worker-1")[2] == [Wanted("worker-1", True, None)]
    assert site.evaluators == [("a",), ("b",)]


def test_a_site_wakes_for_those_who_have_something_to_say() -> None:
    slow, quick = Host(seconds=5.0), Host()
    woken = list[str]()
    job: Any = SimpleNamespace(plan=SimpleNamespace(evaluate=()))
    hosts: Iterator[Host] = iter((slow, quick))
    site = ActorSite(ThreadPost(), Crew(2, {}, None), job, lambda _: ThreadActor(next(hosts)))
    board = site.board(1)
    board.show(0, 0)
    for name in ("slow", "quick"):
        child = site.take(lambda name=name: woken.append(name))
        child.begin(Setup(name, "", "", "", "", 0), [board])
        hear(site, child, Ready)
        child.send(Sync())
    for wake in site.listen(2.0):
        wake()
    assert woken == ["quick"]


def test_without_anyone_under_way_a_site_waits_as_it_was_told() -> None:
    job: Any = SimpleNamespace(plan=SimpleNamespace(evaluate=()))
    site, begun = ActorSite(ThreadPost(), Crew(0, {}, None), job, lambda _: None), time.monotonic()
    assert site.listen(0.2) == [] and time.monotonic() - begun >= 0.2


def test_homes_are_where_most_of_the_replay_is() -> None:
    from clearl.runtimes.cluster.hosted import homes

    shares = [[0, 1], [2, 3]]
    assert homes({"a": {0, 1, 2, 3}, "b": {2}}, shares) == {"worker-0": "a", "worker-1": "a"}
    assert homes({"a": {0, 1}, "b": {0, 1}}, shares) == {}, "all see the same disk"
    assert homes({"a": {0}}, shares) == {"worker-0": "a"}


@pytest.fixture(autouse=True)
def _quick_beats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("clearl.runtimes.cluster.backend._BEAT_S", 0.4)
