"""The learner's loop with children that are objects of this process: what is read when, and what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import clearl
from clearl.errors import WorkerError
from clearl.records.reader import read_rows
from clearl.registry import load_entry
from clearl.runtimes import evaluating, loop
from clearl.runtimes.local import backend
from clearl.runtimes.local.shared_memory import SharedEndpoints
from clearl.runtimes.loop import LearnerLoop
from clearl.runtimes.messages import Close, Evaluate, Message, Setup
from clearl.runtimes.runtime import RunContext, RunSpec

SLOTS, BATCH, T = 4, 2, 5
SETTINGS: dict[str, Any] = {
    "method": "clear", "suite": "minatar", "tasks": ["breakout"], "frames_per_visit": 400, "slots": SLOTS,
    "batch_unrolls": BATCH, "unroll_steps": T, "eval_every_frames": 10**9, "eval_episodes": 1, "eval_max_steps": 1,
    "record_every_updates": 1, "runtime": "local", "buffer_frames": 200,
}  # fmt: skip


class HereChild:
    """Answers at once as long as the backend works; after that it hangs. Evaluations may take longer."""

    pid: int | None = None

    def __init__(self, wake: Callable[[], None], backend: Here, *, background: bool) -> None:
        self.wake, self._backend, self._background = wake, backend, background
        self.said: list[Message] = []
        self._late: Evaluate | None = None
        self._polls = 0

    def begin(self, setup: Setup, shared: Sequence[Any]) -> None:
        assert self._background is not bool(setup.slots), "training waits for workers and not for evaluators"
        endpoints = SharedEndpoints([each.block.descriptor for each in shared])
        sink = SimpleNamespace(send=self.said.append)
        self._program = load_entry(setup.program)(sink, setup, endpoints)
        self.said.append(self._program.ready)

    def send(self, message: Message) -> None:
        if isinstance(message, Evaluate):
            self._late, self._polls = message, 0
        elif self._backend.works and not isinstance(message, Close):
            self.said += self._program.handle(message)

    @property
    def has_news(self) -> bool:
        return bool(self.said) or self._late is not None

    def poll(self) -> list[Message]:
        self._polls += 1
        if self._late is not None and self._polls > self._backend.evaluation_polls and self._backend.works:
            self.said += self._program.handle(self._late)
            weights = self._program.weights
            if self._late.switch:
                self._backend.evaluated[weights.read()[0]] = weights._copy.tobytes()
            self._late = None
        said = self.said.copy()
        self.said.clear()
        return said

    def end(self, patience_s: float = 0.0) -> int:
        self._program.close()
        return 0

    def exit_reason(self, code: int | None) -> tuple[str, bool]:
        return "died", False

    def output(self) -> str:
        return ""


class Here:
    """A backend whose children answer at once."""

    keep_unrolls_after_checkpoint = True

    def __init__(self, context: RunContext, workers: int) -> None:
        self.workers = workers
        self.evaluators: Sequence[tuple[str, ...]] = [context.plan.evaluate]
        self.works, self._children = True, list[HereChild]()
        self.evaluation_polls = 0
        """Polls without an answer before an evaluator has done an evaluation."""
        self.evaluated: dict[int, bytes] = {}
        """The weights of evaluations at switches, by their updates."""
        self.pairs, self.weight_store = (
            backend.LocalBackend.pairs.__get__(self),
            backend.LocalBackend.weight_store.__get__(self),
        )

    def take(self, wake: Callable[[], None], *, background: bool) -> HereChild:
        self._children.append(HereChild(wake, self, background=background))
        return self._children[-1]

    def prepare(self, *, background: bool) -> None: ...

    def unregister(self, child: HereChild) -> None:
        self._children.remove(child)

    def wait(self, wait_s: float) -> list[Callable[[], None]]:
        return [child.wake for child in self._children if child.has_news]


def train(
    out: Path, monkeypatch: pytest.MonkeyPatch, *, workers: int = 1,
    watch: Callable[[LearnerLoop, str], None] = lambda run, part: None, **settings: Any,
) -> LearnerLoop:  # fmt: skip
    """A whole run; `watch` is called before each phase of an update, once pairs were read."""
    runs: list[LearnerLoop] = []

    def run_here(spec: RunSpec) -> None:
        with spec.open() as context:
            run = LearnerLoop(context, Here(context, workers))
            update = run.state.update

            def watched(*given: Any) -> Iterator[str]:
                for phase in update(*given):
                    yield phase
                    watch(run, phase)

            monkeypatch.setattr(run.state, "update", watched)
            runs.append(run)
            run.loop()
            run.close()

    monkeypatch.setattr(backend, "run_local", run_here)
    clearl.run(**SETTINGS | settings, out=str(out))
    return runs[0]


def frames_accounted_for(run: LearnerLoop) -> int:
    """Return the frames that were trained on, or wait in a batch that is not full."""
    return run.context.learner.frames + len(run.context.intake.state()[1]) * T


def test_a_worker_goes_on_in_the_midst_of_an_update_but_not_while_a_batch_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, int]] = []
    run = train(
        tmp_path / "run", monkeypatch, watch=lambda run, part: seen.append((part, run.grants, len(run.waiting)))
    )
    # A round fills two batches: during the first update the second batch waits, during the second update none does.
    assert seen[:3] == [("forward", 2, 1), ("backward", 2, 1), ("optimiser", 2, 1)]
    assert seen[3:6] == [("forward", 3, 2), ("backward", 3, 2), ("optimiser", 3, 2)]
    assert max(waiting for _, _, waiting in seen) == SLOTS // BATCH
    assert run.context.learner.frames == run.context.cursor.granted_frames == 400
    evaluated = [row["frames"] for row in read_rows(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "eval"]
    assert evaluated[-1] == 400  # nothing waited any more when the last weights were evaluated


def test_no_batch_is_older_than_its_round_and_one_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "run", monkeypatch, replay_fraction=0.0)
    lags = [row["lag_updates"] for row in read_rows(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "train"]
    assert lags[:2] == [0, 1]
    assert max(lags) == 2 * SLOTS // BATCH  # played while a round was learnt from, read with one update to go


@pytest.mark.parametrize("workers", [1, 2])
def test_a_checkpoint_is_of_a_moment_when_nothing_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    found: list[tuple[int, int, int]] = []
    save = loop.LearnerLoop._save

    def look(run: LearnerLoop) -> None:
        found.append((len(run.waiting), frames_accounted_for(run), run.context.cursor.granted_frames))
        save(run)

    monkeypatch.setattr(LearnerLoop, "_save", look)
    train(tmp_path / "run", monkeypatch, workers=workers, checkpoint_every_frames=30)
    assert len(found) > 5
    for waiting, accounted, granted in found:
        assert waiting == 0 and accounted == granted


@pytest.mark.parametrize("part", ["forward", "optimiser"])
def test_a_stop_loses_nothing_that_was_read_even_when_workers_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(loop, "_STOP_S", 0.0)

    def stop(run: LearnerLoop, now: str) -> None:
        if now == part and run.context.learner.updates == 5:
            assert isinstance(run.backend, Here)
            run.backend.works, run.context.stop.signal = False, 15

    first = train(tmp_path / "run", monkeypatch, watch=stop)
    assert not first.waiting and first.context.learner.frames == first.context.cursor.granted_frames < 400
    again = train(tmp_path / "run", monkeypatch)
    assert again.context.learner.frames == 400
    trained = [row["updates"] for row in read_rows(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "train"]
    assert trained == list(range(1, 400 // (BATCH * T) + 1))


FOUR_VISITS: dict[str, Any] = {"tasks": ["breakout", "freeway"], "cycles": 2, "frames_per_visit": 100}


def here(run: LearnerLoop) -> Here:
    assert isinstance(run.backend, Here)
    return run.backend


def switches(out: Path) -> list[tuple[int, int, str]]:
    rows = [row for row in read_rows(out / "metrics.jsonl") if row.get("switch")]
    return [(row["segment"], row["frames"], row["task"]) for row in rows]


ALL_SWITCHES = [(index, 100 * (index + 1), task) for index in range(4) for task in ("breakout", "freeway")]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_evaluator_that_lags_still_gets_the_weights_of_every_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    published: dict[int, bytes] = {}

    def lag(run: LearnerLoop, part: str) -> None:
        here(run).evaluation_polls = 10**9 if run.context.learner.frames < 350 else 0
        if part == "forward":
            flat = np.empty(run.flat.size, np.float32)
            run.flat.write_to(flat)
            published[run.context.learner.updates] = flat.tobytes()

    run = train(tmp_path / "run", monkeypatch, watch=lag, workers=workers, **FOUR_VISITS)
    lag(run, "forward")
    assert switches(tmp_path / "run") == ALL_SWITCHES
    evaluated = here(run).evaluated
    assert sorted(evaluated) == [10, 20, 30, 40] and len(set(evaluated.values())) == 4
    assert evaluated == {updates: published[updates] for updates in evaluated}


def test_a_resumed_run_makes_up_for_pending_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_STOP_S", 0.0)

    def stop(run: LearnerLoop, part: str) -> None:
        here(run).evaluation_polls = 10**9
        if run.context.learner.frames >= 250:
            run.context.stop.signal = 15

    train(tmp_path / "run", monkeypatch, watch=stop, **FOUR_VISITS)
    assert switches(tmp_path / "run") == []
    train(tmp_path / "run", monkeypatch, **FOUR_VISITS)
    assert switches(tmp_path / "run") == ALL_SWITCHES


@pytest.mark.parametrize("most", [2, 100])
def test_training_waits_before_too_many_switches_are_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(evaluating, "_MOST_SNAPSHOTS", most)
    pending: list[int] = []

    def lag(run: LearnerLoop, part: str) -> None:
        here(run).evaluation_polls = 60
        pending.append(len(run.state.snapshots))

    settings = {**FOUR_VISITS, "cycles": 5, "frames_per_visit": 20}
    train(tmp_path / "run", monkeypatch, watch=lag, **settings)
    assert (max(pending) <= 3) == (most == 2), "one under evaluation and two behind it"
    assert [segment for segment, _, task in switches(tmp_path / "run") if task == "breakout"] == list(range(10))


@pytest.mark.parametrize("eval_wait", [False, True])
def test_skipped_evaluations_are_counted_and_none_is_where_training_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eval_wait: bool
) -> None:
    def lag(run: LearnerLoop, part: str) -> None:
        here(run).evaluation_polls = 20

    train(tmp_path / "run", monkeypatch, watch=lag, eval_every_frames=20, eval_wait=eval_wait)
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    (evaluations,) = (row["evaluations"] for row in rows if row["kind"] == "summary")
    assert evaluations["made"] + evaluations["skipped"] == 400 // 20 + 1
    assert sum(row.get("skipped", 0) for row in rows if row["kind"] == "eval") == evaluations["skipped"]
    assert (evaluations["skipped"] == 0) == eval_wait


def test_a_half_full_batch_is_taken_up_by_another_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers leave slots 0 and 1 waiting; the one worker that goes on has them both, and two others."""
    monkeypatch.setattr(loop, "_STOP_S", 0.0)

    def stop(run: LearnerLoop, part: str) -> None:
        run.context.stop.signal = 15 if run.context.learner.updates == 2 else None

    def report_alone(run: LearnerLoop, part: str) -> None:
        """From here on only the first worker answers."""
        if run.context.learner.updates == 2:
            run.workers[1].supervisor.send = lambda message: None  # pyright: ignore[reportAttributeAccessIssue]
            stop(run, part)

    settings = {"batch_unrolls": 4, "replay_fraction": 0.0}
    first = train(tmp_path / "run", monkeypatch, workers=2, watch=report_alone, **settings)
    assert first.context.intake.waiting_slots == [[0, 1]]
    again = train(tmp_path / "run", monkeypatch, workers=1, **settings)
    assert again.context.cursor.finished and frames_accounted_for(again) == again.context.cursor.granted_frames


def test_a_run_that_can_never_go_on_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "next_to_read", lambda workers, intake: None)
    with pytest.raises(WorkerError, match=r"stands still.*'worker-0': 0.*open batches: \[\[\]\]"):
        train(tmp_path / "run", monkeypatch)
