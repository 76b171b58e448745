from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from clearl.errors import StorageError, WorkerError
from clearl.runtimes.backend import Backend
from clearl.runtimes.local.processes import LocalProcess
from clearl.runtimes.messages import Alive, ChannelClosed, Failed, Message, Produce, Produced, Ready
from clearl.runtimes.remote import received
from clearl.runtimes.supervision import BUILDING_S, FaultBudget, RunningClock, Supervisor, SupervisorContext

READY, WORK = Ready((0,), 0), Produce(("a",))
DONE = Produced(0, {}, (1,), {}, {})
FAULT = Failed(
    "EnvironmentFaultError", "environment of task 'a', slot 0, step 3: it hurts", "a: it hurts", "Traceback X"
)


@dataclass
class FakeChild:
    """A child that sends what the test puts into `says`; a negative number there ends it by that signal."""

    says: list[Message | int] = field(default_factory=list)
    channel: Any = None
    ended: bool = False
    code: int = 0

    def poll(self) -> list[Message]:
        if self.says and isinstance(self.says[0], int):
            self.code = self.says[0]
            raise ChannelClosed
        heard = [message for message in self.says if not isinstance(message, int)]
        self.says.clear()
        return heard

    def send(self, message: Message) -> None: ...

    def end(self, patience_s: float = 0.0) -> int:
        self.ended = True
        return self.code

    def exit_reason(self, code: int | None) -> tuple[str, bool]:
        return LocalProcess.exit_reason(cast(LocalProcess, self), code)

    def output(self) -> str:
        return "printed in the end"


def poll(supervisor: Supervisor) -> list[Message]:
    """Receive, then look after the process, as the learner's loop does."""
    process, messages = supervisor.process, received(supervisor)
    if not messages and supervisor.process is process:
        supervisor.check()
    return messages


class Stage:
    """A supervisor with fake children, a clock that the test moves, and a record of what was reported."""

    def __init__(self, timeout_s: float = 10.0) -> None:
        self.now = 1000.0
        self.children: list[FakeChild] = []
        self.faults: list[str] = []
        self.restarts: list[float] = []
        self.backgrounds: list[bool] = []
        self.prepared: list[bool] = []
        self.supervision = SupervisorContext(
            cast(Backend, self), timeout_s, lambda name, problem: self.faults.append(f"{name}: {problem}"),
            lambda name, after_s: self.restarts.append(after_s), clock=lambda: self.now,
        )  # fmt: skip
        self.supervisor = self.another("worker-0")

    def another(self, name: str) -> Supervisor:
        made = Supervisor(name, lambda child, starts: None, lambda: None, self.supervision)
        made.wanted = True
        return made

    # As the backend does.

    def unregister(self, child: FakeChild) -> None: ...

    def take(self, wake: Any, *, background: bool) -> FakeChild:
        self.backgrounds.append(background)
        self.children.append(FakeChild())
        return self.children[-1]

    def prepare(self, *, background: bool) -> None:
        self.prepared.append(background)

    # What happens.

    def says(self, *messages: Message | int, to: Supervisor | None = None) -> list[Message]:
        self.children[-1].says.extend(messages)
        return poll(to or self.supervisor)

    def start(self, supervisor: Supervisor | None = None) -> None:
        poll(supervisor or self.supervisor)
        assert self.says(READY, to=supervisor) == [READY]

    def work(self) -> None:
        self.supervisor.send(WORK)
        assert self.says(DONE) == [DONE]
        self.supervisor.done()


def test_a_child_killed_from_outside_is_replaced_at_once_any_number_of_times() -> None:
    stage = Stage()
    for _ in range(50):
        stage.start()
        stage.work()
        stage.now += 1
        stage.says(-signal.SIGKILL)
        assert stage.children[-1].ended and not stage.supervisor.ready
        stage.now += 0.75
    stage.start()
    assert stage.faults == ["worker-0: was killed by SIGKILL"] * 50
    assert stage.restarts == [0.75] * 50 and stage.prepared == [False] * 50


def test_a_child_for_the_background_is_replaced_by_one_of_its_kind() -> None:
    stage = Stage()
    evaluator = Supervisor("evaluator", lambda child, starts: None, lambda: None, stage.supervision, background=True)
    evaluator.wanted = True
    stage.start(evaluator)
    stage.says(-signal.SIGKILL, to=evaluator)
    stage.start(evaluator)
    assert stage.backgrounds == [True, True] and stage.prepared == [True]


def test_a_silent_child_is_killed_at_its_deadline_and_not_before() -> None:
    stage = Stage(timeout_s=10)
    stage.start()
    stage.now += 10_000
    assert stage.says() == [] and stage.faults == []  # it was not told to do anything
    stage.supervisor.send(WORK)
    stage.now += 9.9
    stage.says()
    stage.says(Alive(building=False))
    stage.now += 9.9
    stage.says()
    assert stage.faults == []
    stage.now += 0.2
    stage.says()
    assert stage.faults == ["worker-0: said nothing for 10 s (worker_timeout_s) and was killed"]
    assert stage.children[0].ended


def test_a_child_that_builds_environments_has_more_time() -> None:
    stage = Stage(timeout_s=10)
    stage.start()
    stage.supervisor.send(WORK)
    stage.says(Alive(building=True))
    stage.now += BUILDING_S - 1
    stage.says()
    assert stage.faults == []
    stage.says(Alive(building=False))
    stage.now += 11
    stage.says()
    assert len(stage.faults) == 1


def test_what_was_said_before_the_deadline_counts_even_if_it_is_heard_late() -> None:
    stage = Stage(timeout_s=10)
    stage.start()
    stage.supervisor.send(WORK)
    stage.now += 100  # the learner was busy
    assert stage.says(DONE) == [DONE]
    assert stage.faults == []


def test_a_fault_before_any_work_is_tried_once_more_and_then_ends_the_run() -> None:
    stage = Stage()
    stage.start()
    stage.supervisor.send(WORK)
    stage.says(FAULT)
    stage.start()
    stage.supervisor.send(WORK)
    with pytest.raises(WorkerError, match="task 'a', slot 0, step 3: it hurts\n\nTraceback X"):
        stage.says(FAULT)


def test_two_workers_with_the_same_fault_before_any_work_end_the_run() -> None:
    stage = Stage()
    stage.start()
    stage.says(FAULT)
    other = stage.another("worker-1")
    stage.start(other)
    elsewhere = Failed(
        FAULT.kind, "environment of task 'a', slot 9, step 1: it hurts", FAULT.fingerprint, "Traceback Y"
    )
    with pytest.raises(WorkerError, match="worker-1 met a fault that came twice"):
        stage.says(elsewhere, to=other)


def test_a_death_without_an_exit_code_names_the_tasks_if_the_process_may_be_to_blame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    stage.supervisor.tasks = ("a", "b")
    for is_fault in (True, False):
        monkeypatch.setattr(FakeChild, "exit_reason", lambda self, code, f=is_fault: ("died", f))
        monkeypatch.setattr(FakeChild, "end", lambda self, patience_s=0.0: None)
        stage.start()
        stage.says(-1)
    assert stage.faults == ["worker-0: died while it worked on a, b", "worker-0: died"]


def test_an_abort_before_any_work_counts_as_a_fault_with_what_was_printed() -> None:
    stage = Stage()
    stage.start()
    stage.says(-signal.SIGABRT)
    stage.start()
    with pytest.raises(WorkerError, match="was killed by SIGABRT\n\nthe last it printed:\nprinted in the end"):
        stage.says(-signal.SIGABRT)


def test_the_sixth_fault_within_ten_minutes_ends_the_run_with_its_traceback() -> None:
    stage = Stage()
    for number in range(6):
        stage.start()
        stage.work()
        stage.supervisor.send(WORK)
        stage.now += 60
        if number < 5:
            stage.says(FAULT)
            stage.now += 10
    with pytest.raises(WorkerError, match="more than 5 times in 10 minutes(.|\n)*Traceback X"):
        stage.says(FAULT)
    assert len(stage.faults) == 6


def test_a_child_is_not_started_before_its_wait_is_over() -> None:
    stage = Stage()
    for _ in range(3):
        stage.start()
        stage.work()
        stage.says(FAULT)
        stage.now += 0.4
    assert len(stage.children) == 3
    stage.says()
    assert len(stage.children) == 3  # the third wait is half a second
    stage.now += 0.2
    stage.says()
    assert len(stage.children) == 4


def test_a_full_disk_ends_the_run_as_what_it_is() -> None:
    stage = Stage()
    stage.start()
    with pytest.raises(StorageError, match="worker-0: no room on /data"):
        stage.says(Failed("StorageError", "no room on /data", "", ""))


def test_time_in_which_the_supervisor_did_not_run_is_not_held_against_a_process() -> None:
    stage, wall = Stage(timeout_s=10), [0.0]
    stage.supervision.clock = RunningClock(lambda: wall[0], lambda: 0.0)
    stage.start()
    stage.supervisor.send(WORK)
    for _ in range(5):  # paused again and again, far longer than the timeout
        wall[0] += 3600
        stage.says()
    assert stage.faults == []
    for _ in range(60):
        wall[0] += 0.1
        stage.says()
    assert stage.faults == ["worker-0: said nothing for 10 s (worker_timeout_s) and was killed"]


def test_time_that_the_learner_computed_counts_however_long_its_updates_are() -> None:
    wall, computed = [0.0], [0.0]
    clock = RunningClock(lambda: wall[0], lambda: computed[0])
    wall[0], computed[0] = 20.0, 19.5  # an update
    assert clock() == 19.5
    wall[0], computed[0] = 3620.0, 20.0  # a pause
    assert clock() == 20.5
    wall[0], computed[0] = 3620.25, 20.25
    assert clock() == 20.75


def test_a_large_budget_of_faults_survives_many_also_before_any_work_was_done() -> None:
    stage = Stage()
    stage.supervision.budget = FaultBudget(faults=50, backoff_s=0.0)
    stage.supervisor = stage.another("worker-1")
    for _ in range(9):
        stage.start()
        stage.says(FAULT)
        stage.now += 0.1
    assert len(stage.faults) == 9
