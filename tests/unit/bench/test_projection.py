"""The arithmetic of the projection, by hand."""

from __future__ import annotations

import pytest

from clearl.bench.projection import Constants

ROW = {
    "run": "Atari", "measured_on": "atari", "total_frames": 864_000_000, "frames_per_s": 10_000.0,
    "worker_frames_per_s": 2_500.0, "replay_bytes_per_frame": 80.0, "buffer_share": 0.25, "waste_share": 0.5,
}  # fmt: skip
RUN = Constants.of(ROW)


def test_one_machine_does_the_work_of_workers_and_learner_in_turns() -> None:
    # A frame costs 1 / 5,000 s on two cores of workers and 1 / 10,000 s of the learner.
    assert RUN.one_machine(2) == pytest.approx(1 / (0.0002 + 0.0001))
    assert RUN.days(RUN.one_machine(2)) == pytest.approx(3.0)


@pytest.mark.parametrize(("workers", "rate"), [(1, 2_500.0), (3, 7_500.0), (4, 10_000.0), (64, 10_000.0)])
def test_a_cluster_is_as_fast_as_its_slower_side(workers: int, rate: float) -> None:
    assert RUN.cluster(workers) == rate


def test_a_learner_serves_as_many_workers_as_it_can_take_the_frames_of() -> None:
    assert RUN.workers_served == 4.0
    assert RUN.cluster(4) == RUN.produced(4) and RUN.cluster(5) < RUN.produced(5) == 12_500.0


def test_replay_is_the_share_of_the_frames_that_the_buffer_holds() -> None:
    assert RUN.replay_bytes == 0.25 * 864_000_000 * 80
    assert RUN.most_disk_bytes == 2 * RUN.replay_bytes
