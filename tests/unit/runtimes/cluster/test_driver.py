"""The driver of learners that are elsewhere: what it answers, and what it does when one dies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from thread_actors import DEATH, ThreadActor, ThreadTransport

from clearl.errors import ConfigError, WorkerError
from clearl.runtimes.cluster.backend import ActorRequest
from clearl.runtimes.cluster.driver import Driver, HostedLearner
from clearl.runtimes.host import StopFlag
from clearl.runtimes.runtime import Factory, RunContext, RunSpec

Work = Callable[["Learner"], None]


def nobody_opens(spec: RunSpec, factory: Factory) -> AbstractContextManager[RunContext]:
    raise AssertionError("these learners train nothing")


class Learner(HostedLearner):
    """Does `work` in place of training."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work, self.ask = work, self._ask

    def train(self, *_: Any) -> None:
        self.deaths = list(_[-1])
        self.work(self)


class HangingLearner(Learner):
    """Does not even answer to `poll`."""

    def poll(self, *_: Any) -> None:
        time.sleep(30.0)


@dataclass
class Threads:
    """A host whose learners do one work after the other."""

    learners: Iterator[Learner]
    transport: ThreadTransport = field(default_factory=ThreadTransport)
    bundle: Any = None
    placed: list[ThreadActor] = field(default_factory=list)
    children: list[tuple[ActorRequest, ThreadActor]] = field(default_factory=list)
    refusal: ConfigError | None = None

    def learner(self) -> tuple[ThreadActor, str]:
        self.placed.append(ThreadActor(next(self.learners)))
        return self.placed[-1], "10.0.0.1"

    def child(self, request: ActorRequest) -> ThreadActor:
        self.children.append((request, ThreadActor(SimpleNamespace())))
        return self.children[-1][1]

    def check(self) -> Any:
        if self.refusal:
            raise self.refusal
        return None


def host(*works: Work, kind: type[Learner] = Learner) -> Threads:
    return Threads(iter([kind(work) for work in works]))


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    config: Any = SimpleNamespace(worker_timeout_s=0.5, fault_budget=5, fault_window_s=600.0, restart_backoff_s=0.25)
    plan: Any = None
    return RunSpec(config, plan, tmp_path, nobody_opens, "", None, StopFlag(), listeners=[])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearl.runtimes.cluster.driver._LEAST_PATIENCE_S", 0.5)


def idle(learner: Learner) -> None: ...


def test_rows_are_shown_and_children_placed_in_the_order_of_the_questions(spec: RunSpec) -> None:
    published = list[Any]()
    spec = replace(spec, listeners=[published.append])

    def work(learner: Learner) -> None:
        learner.ask({"kind": "train"})
        assert published == [{"kind": "train"}], "training goes on when the row has been shown"
        learner.ask(ActorRequest("worker-0", True, None))

    there = host(work)
    Driver(spec, there).run()
    assert [request.name for request, _ in there.children] == ["worker-0"]
    assert all(actor.dead for actor in (*there.placed, *(actor for _, actor in there.children)))


def test_another_learner_gets_the_same_children_and_hears_of_the_death(spec: RunSpec) -> None:
    given, there = list[Any](), host(idle, idle)
    request = ActorRequest("worker-0", True, None)

    def dies(learner: Learner) -> None:
        given.extend(learner.ask(request) for _ in range(2))  # the first died, too
        there.placed[0].kill()

    def goes_on(learner: Learner) -> None:
        given.append(learner.ask(request))
        assert learner.deaths == [f"{DEATH} (process {os.getpid()})"]

    there.learners = iter([Learner(dies), Learner(goes_on)])
    Driver(spec, there).run()
    first, second, third = given
    assert first is not second and second is third
    assert len(there.placed) == 2


def test_a_learner_that_hangs_is_killed_but_not_before_its_first_question(spec: RunSpec) -> None:
    there, published = host(idle, idle), list[Any]()
    spec = replace(spec, listeners=[published.append])

    def slow_start_then_hang(learner: Learner) -> None:
        time.sleep(1.5)  # longer than its patience
        learner.ask({"kind": "train"})
        learner.poll = HangingLearner.poll.__get__(learner)
        time.sleep(30.0)

    def goes_on(learner: Learner) -> None:
        assert "said nothing for 0.5 s (worker_timeout_s) and was killed" in learner.deaths[0]

    class Importing(Learner):
        """While it imports, nothing is answered."""

        def poll(self, *given: Any) -> Any:
            if not self.__dict__.setdefault("awake", False):
                self.awake = True
                time.sleep(1.2)
            return super().poll(*given)

    there.learners = iter([Importing(slow_start_then_hang), Learner(goes_on)])
    Driver(spec, there).run()
    assert there.placed[0].dead and len(there.placed) == 2
    assert published == [{"kind": "train"}]


def test_a_learner_that_dies_again_and_again_ends_the_run(spec: RunSpec) -> None:
    spec.config.fault_budget = 2  # type: ignore[misc]
    there = host()
    there.learners = iter([Learner(lambda _: there.placed[-1].kill()) for _ in range(3)])
    with pytest.raises(WorkerError, match=f"the learner died more than 2 times in 10 minutes .*: {DEATH}"):
        Driver(spec, there).run()
    assert len(there.placed) == 3


def test_after_a_stop_no_other_learner_is_placed(spec: RunSpec) -> None:
    there = host()

    def dies(_: Learner) -> None:
        spec.stop.signal = 15
        there.placed[-1].kill()

    there.learners = iter([Learner(dies)])
    Driver(spec, there).run()
    assert len(there.placed) == 1


def test_a_stop_reaches_the_learner(spec: RunSpec) -> None:
    spec.stop.signal = 2

    def until_stopped(learner: Learner) -> None:
        while not learner._stop:
            time.sleep(0.01)

    Driver(spec, host(until_stopped)).run()


def test_errors_of_the_learner_and_of_the_check_are_those_of_the_run(spec: RunSpec) -> None:
    def fails(_: Learner) -> None:
        raise ConfigError("no such device")

    there = host(fails)
    with pytest.raises(ConfigError, match="no such device"):
        Driver(spec, there).run()
    assert there.placed[0].dead
    there = host(idle)
    there.refusal = ConfigError("too small")
    with pytest.raises(ConfigError, match="too small"):
        Driver(spec, there).run()
    assert there.placed[0].dead


def test_a_stop_before_the_learner_arrives_ends_the_run_at_once(spec: RunSpec) -> None:
    class Late(Learner):
        def arrive(self, mark: str) -> tuple[int, bool]:
            spec.stop.signal = 2
            time.sleep(5.0)
            return super().arrive(mark)

    there, begun = host(idle, kind=Late), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Driver(spec, there).run()
    assert time.monotonic() - begun < 4 and there.placed[0].dead


def test_a_learner_that_never_arrives_or_sees_another_disk_is_refused(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearl.runtimes.cluster.driver._ARRIVAL_S", 0.2)

    class Late(Learner):
        def arrive(self, mark: str) -> tuple[int, bool]:
            time.sleep(2.0)
            return super().arrive(mark)

    with pytest.raises(ConfigError, match=r"no learner could be started within 0\.2 s"):
        Driver(spec, host(idle, kind=Late)).run()
    monkeypatch.setattr("clearl.runtimes.cluster.driver.NamedTemporaryFile", elsewhere)
    with pytest.raises(ConfigError, match=r"goes to node 10\.0\.0\.1, which does not see .*: give an --out that"):
        Driver(spec, host(idle)).run()


@contextmanager
def elsewhere(**_: Any) -> Iterator[Any]:
    """A file that is on this machine only, as far as another can tell."""
    yield SimpleNamespace(name="/nowhere/mark")
