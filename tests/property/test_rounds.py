"""However slots, batches, workers and visits fit each other, everything that was granted is read, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clearl.learning.batching import Intake, Pairs
from clearl.replay.codec import Codec
from clearl.replay.mixing import EitherMixer
from clearl.runtimes.loop import next_to_read
from clearl.runtimes.remote import RemoteWorker
from clearl.spaces import discrete_spec
from clearl.tasks.plan import Plan, single
from clearl.tasks.schedule import Grant, PlanCursor
from clearl.unroll import UnrollLayout

LAYOUT = UnrollLayout(discrete_spec((1,), "float32", 2), 1)
CODEC = Codec(LAYOUT)


@dataclass
class FakeWorker:
    """The attributes that `next_to_read` reads; the row's value says which worker and segment it is from."""

    slots: list[int]
    grant: Grant | None = None
    report: object | None = None
    turn: int = 0

    def pairs(self) -> Pairs:
        assert self.grant is not None
        count = len(self.slots)
        new = LAYOUT.empty(count)
        new.reward[:] = self.grant.segment
        new.value[:] = np.array(self.slots)[:, None]
        return Pairs(self.slots, new, [None] * count, 0)


def an_intake(batch: int) -> Intake:
    return Intake(CODEC, batch, EitherMixer(0, 0), discount=1.0, reward_clip="none")


def cluster(slots: int, count: int) -> list[FakeWorker]:
    return [FakeWorker(part.tolist()) for part in np.array_split(np.arange(slots), count)]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_all_grants_are_read_and_segments_do_not_mix_out_of_order(data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, 9))
    batch = data.draw(st.integers(1, slots))
    count = data.draw(st.integers(1, slots))
    plan = Plan("p", tuple(single("t", frames=data.draw(st.integers(1, 30))) for _ in range(3)), ("t",))
    cursor, intake, workers = PlanCursor(plan, slots), an_intake(batch), cluster(slots, count)
    draining = data.draw(st.integers(0, 60))  # from this read on, nothing new is granted
    read, grants, segments = 0, 0, []
    while True:
        for worker in workers:
            if worker.grant is None and read < draining:
                worker.grant = cursor.grant(len(worker.slots))
                grants += worker.grant is not None
                worker.turn = grants
        busy = [worker for worker in workers if worker.grant is not None and worker.report is None]
        if busy:
            data.draw(st.sampled_from(busy)).report = object()
        chosen = next_to_read(cast(list[RemoteWorker], workers), intake)
        if chosen is None:
            if not any(worker.grant for worker in workers):
                break
            assert busy, "every worker has reported, and none can be read"
            continue
        for staging in intake.take(chosen.pairs()):
            segments += intake.batch(staging)[0].reward[0].tolist()
        chosen.grant = chosen.report = None
        read += 1
    assert read == grants
    assert segments == sorted(segments)
    if cursor.finished:
        assert cursor.granted_frames >= (plan.total_frames or 0) and len(segments) > cursor.granted_frames - batch


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_resume_with_any_number_of_workers_goes_on(data: st.DataObject) -> None:
    """Workers report in any order, a checkpoint is taken when all are read, and the run goes on with other workers."""
    slots = data.draw(st.integers(1, 9))
    batch = data.draw(st.integers(1, slots))
    intake, read, learnt = an_intake(batch), 0, 0
    for _ in range(3):
        workers = cluster(slots, data.draw(st.integers(1, slots)))
        saved, intake = intake.state(), an_intake(batch)
        intake.restore(*saved)
        for _ in range(data.draw(st.integers(1, 4))):
            for turn, worker in enumerate(workers):
                granted = data.draw(st.booleans())  # a stop takes back what a worker was granted and did not report
                worker.grant, worker.turn = Grant(0, ("t",) * slots) if granted else None, turn
            while any(worker.grant for worker in workers):
                pairs, batches = _read_one(data, workers, intake)
                read, learnt = read + pairs, learnt + batches * batch
    assert read == learnt + sum(map(len, intake.waiting_slots))


def _read_one(data: st.DataObject, workers: list[FakeWorker], intake: Intake) -> tuple[int, int]:
    """Let a worker report, or read one that has; return the pairs that were read and the batches that they filled."""
    chosen = next_to_read(cast(list[RemoteWorker], workers), intake)
    busy = [worker for worker in workers if worker.grant is not None and worker.report is None]
    if busy and (chosen is None or data.draw(st.booleans())):
        data.draw(st.sampled_from(busy)).report = object()
        return 0, 0
    assert chosen is not None, f"every worker has reported, and none can be read: {intake.waiting_slots}"
    full = intake.take(chosen.pairs())
    for staging in full:
        taken = intake.batch(staging)[0].behaviour_value[0].tolist()
        assert len(set(taken)) == len(taken) == intake.batch_unrolls
    chosen.grant = chosen.report = None
    return len(chosen.slots), len(full)
