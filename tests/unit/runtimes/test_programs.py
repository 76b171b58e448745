"""A round of a worker process, with an actor and shards that only record their calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clearl.acting.actor import Episode
from clearl.errors import EnvironmentFaultError
from clearl.runtimes.messages import Message, Produce, Produced, Setup, Sync, Synced
from clearl.runtimes.programs import _ROUNDS_TO_RECLAIM, WorkerProgram
from clearl.spaces import discrete_spec
from clearl.unroll import UnrollLayout

LAYOUT = UnrollLayout(discrete_spec((1,), "float32", 2), 1)
ENTRY = f"{__name__}:make_factory"


class Shard:
    """Counts its unrolls and remembers the floors and unrolls it was given."""

    def __init__(self) -> None:
        self.next_sequence, self.floors, self.synced = 0, list[tuple[int, int]](), False
        self.inserted: list[float] = []
        self.labels: list[Any] = []

    def recovered_next_sequence(self) -> int:
        return 7

    def restore(self, next_sequence: int) -> None:
        self.next_sequence = next_sequence

    def insert(self, row: Any, label: Any = None) -> None:
        self.inserted.append(float(row.reward[0]))
        self.labels.append(label)
        self.next_sequence += 1

    def counters(self) -> dict[str, int]:
        return {"lost": 2}

    def set_floor(self, sequence: int) -> None:
        self.floors.append((self.next_sequence, sequence))

    def sync(self) -> None:
        self.synced = True


class Worker:
    def __init__(self) -> None:
        self.shards = [Shard(), Shard()]

    def act(self, tasks: Any, new: Any, frames: int) -> list[Any]:
        new.reward[:] = len(tasks)
        return [Episode("t", 2.0, 3)]

    def recall(self) -> list[Any]:
        return [b"%d" % self.shards[0].next_sequence, None]

    def remember(self, new: Any) -> None:
        for index, shard in enumerate(self.shards):
            shard.insert(new[index])

    def take_faults(self) -> list[EnvironmentFaultError]:
        return [EnvironmentFaultError("t", 3, 8, "the motor is on fire\nTraceback")]

    def replay_counters(self) -> dict[str, int]:
        return {"held": 1}


class Factory:
    layout, draws, suite = LAYOUT, 1, type("Suite", (), {"name": "", "tasks": (), "spec": None})

    def network(self) -> Any:
        return type("Network", (), {"core_size": 0})

    def worker(self, slots: Any, network: Any, **_: Any) -> Any:
        return Worker()


def make_factory(config: str, run_dir: Any) -> Any:
    return Factory()


class Endpoints:
    def __init__(self) -> None:
        self.new, self.sequences = LAYOUT.empty(2), np.zeros(2, np.int64)
        self.replay: Any = None

    def weights(self, network: Any) -> Any:
        return self

    def read(self) -> tuple[int, int]:
        return 11, 0

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> Any:
        return self

    def put_replay(self, payloads: Any) -> None:
        self.replay = payloads


class MessageSink:
    def send(self, message: Message) -> None: ...


def make(
    *, keep_unrolls_after_checkpoint: bool, endpoints: Endpoints | None = None
) -> tuple[WorkerProgram, Worker, Endpoints]:
    setup = Setup(
        "worker-0",
        "",
        ENTRY,
        "",
        "",
        0,
        slots=(0, 1),
        sequences=(5, 9),
        keep_unrolls_after_checkpoint=keep_unrolls_after_checkpoint,
        played=("a", "b"),
        played_frames=640,
    )
    endpoints = endpoints or Endpoints()
    program = WorkerProgram(MessageSink(), setup, endpoints)
    worker: Any = program.worker
    return program, worker, endpoints


@pytest.mark.parametrize(("keep_unrolls_after_checkpoint", "reached"), [(True, (7, 9)), (False, (5, 9))])
def test_shards_go_back_to_what_was_acknowledged_or_to_what_they_have_beyond(
    keep_unrolls_after_checkpoint: bool, reached: tuple[int, ...]
) -> None:
    program, worker, _ = make(keep_unrolls_after_checkpoint=keep_unrolls_after_checkpoint)
    assert program.ready.sequences == reached == tuple(shard.next_sequence for shard in worker.shards)
    assert program.ready.lost == 4


def test_a_round_leaves_a_pair_of_each_slot_and_says_so() -> None:
    program, worker, endpoints = make(keep_unrolls_after_checkpoint=False)
    for sequence in (6, 7):
        (answer,) = program.handle(Produce(("a", "b")))
        assert isinstance(answer, Produced) and answer.sequences == (sequence, sequence + 4)
        assert [problem for problem, _ in answer.faults] == [
            "environment of task 't', slot 3, step 8: the motor is on fire"
        ]
        assert (answer.version, answer.episodes, answer.replay) == (11, {"t": (1.0, 2.0, 3.0)}, {"held": 1})
        assert endpoints.new.reward.tolist() == [[2], [2]] and endpoints.replay == [b"%d" % (sequence - 1), None]
        assert [shard.inserted[sequence - 6 :] for shard in worker.shards] == [[2.0], [2.0]]


def test_a_round_is_told_before_it_is_inserted_and_until_then_can_be_found_by_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, worker, endpoints = make(keep_unrolls_after_checkpoint=False)
    endpoints.sequences[:], meanwhile = (5, 9), list[list[int]]()
    monkeypatch.setattr(worker, "act", lambda tasks, new, frames: meanwhile.append(endpoints.sequences.tolist()) or [])
    telling = program.handle(Produce(("a", "b")))
    answer = next(telling)
    assert meanwhile == [[0, 0]], "what is being overwritten must not be taken for what was told"
    assert isinstance(answer, Produced) and worker.shards[0].inserted == []
    assert endpoints.sequences.tolist() == [6, 10] == list(answer.sequences)
    assert list(telling) == [] and len(worker.shards[0].inserted) == 1


@pytest.mark.parametrize(
    ("reported", "inserted"),
    [
        ((5, 9), [[], [3.0]]),  # the first shard has unrolls up to 7: nothing is missing there
        ((6, 10), [[], []]),  # another round, which nobody was told of
        ((0, 0), [[], []]),  # a round had begun, so the one before was inserted
    ],
)
def test_what_another_process_had_told_of_and_not_inserted_is_inserted_now(
    reported: tuple[int, int], inserted: list[list[float]]
) -> None:
    endpoints = Endpoints()
    endpoints.sequences[:], endpoints.new.reward[:] = reported, 3.0
    program, worker, _ = make(keep_unrolls_after_checkpoint=False, endpoints=endpoints)
    assert [shard.inserted for shard in worker.shards] == inserted
    labels = [[(*label[:2], label.reward_sum) for label in shard.labels] for shard in worker.shards]
    total = float(LAYOUT.unroll_steps)
    assert labels == [[(task, 640, each * total) for each in some] for task, some in zip("ab", inserted, strict=True)]
    assert program.ready.sequences == (5, 9) == tuple(shard.next_sequence for shard in worker.shards)


def test_now_and_then_space_is_reclaimed_below_what_was_read_and_never_above() -> None:
    program, worker, _ = make(keep_unrolls_after_checkpoint=False)
    for _ in range(3 * _ROUNDS_TO_RECLAIM):
        list(program.handle(Produce(("a", "b"))))
    # Before the n-th round all unrolls of the n - 1 before it have been read.
    before = [_ROUNDS_TO_RECLAIM * turn - 1 for turn in (1, 2, 3)]
    assert worker.shards[0].floors == [(5 + rounds, 5 + rounds) for rounds in before]
    assert worker.shards[1].floors == [(9 + rounds, 9 + rounds) for rounds in before]


def test_sync_reaches_every_shard() -> None:
    program, worker, _ = make(keep_unrolls_after_checkpoint=False)
    assert list(program.handle(Sync())) == [Synced()] and all(shard.synced for shard in worker.shards)
