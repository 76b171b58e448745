"""The arithmetic of the bench: ideal, achieved rate, shares, the table."""

from __future__ import annotations

import pytest

from clearl.bench.endtoend import achieved, long_enough
from clearl.bench.measure import breakdown, spread
from clearl.bench.stages import ideal_rate
from clearl.bench.table import as_table
from clearl.bench.workloads import WORKLOADS, workload
from clearl.config import RunConfig
from clearl.errors import UnknownNameError, WorkerError


def train_rows(*marks: tuple[int, float]) -> list[dict]:
    return [{"kind": "train", "frames": frames, "wall_s": wall_s} for frames, wall_s in marks]


def test_the_ideal_does_one_stage_after_the_other() -> None:
    assert ideal_rate([100.0, 50.0]) == pytest.approx(1 / (0.01 + 0.02))
    assert ideal_rate([30.0, 30.0, 30.0]) == pytest.approx(10.0)


def test_the_achieved_rate_leaves_out_start_and_end() -> None:
    rows = train_rows((10, 60.0), (20, 62.0), (60, 64.0), (100, 66.0))
    rows.insert(0, {"kind": "eval", "frames": 0, "wall_s": 30.0})
    rows.append({"kind": "eval", "frames": 100, "wall_s": 99.0})
    assert achieved(rows) == (100, 20.0)  # from 20 frames on: 10 are within the warm-up


def test_a_run_without_two_marks_has_no_rate() -> None:
    with pytest.raises(WorkerError, match="--seconds"):
        achieved(train_rows((10, 1.0)))


def test_shares_are_of_the_time_of_each_process() -> None:
    runs = [{"learner": {"waiting": 1.0, "forward": 2.0}}, {"learner": {"forward": 1.0}, "worker-0": {"codec": 4.0}}]
    assert breakdown(runs) == {"learner": {"forward": 0.75, "waiting": 0.25}, "worker-0": {"codec": 1.0}}


def test_spread_keeps_every_value() -> None:
    assert spread(iter([3.0, 1.0, 2.0])) == {"median": 2.0, "min": 1.0, "max": 3.0, "values": [3.0, 1.0, 2.0]}


def test_the_table_shows_rates_ratio_and_shares() -> None:
    result = {
        "workload": "minatar", "repeats": 3, "cores": 2,
        "frames_per_s": {"ideal": spread([1000.0]), "achieved": spread([800.0])},
        "achieved_over_ideal_spread": spread([0.8, 0.7, 0.9]),
        "breakdown": {"learner": {"forward": 0.4, "waiting": 0.001}},
    }  # fmt: skip
    lines = as_table(result).splitlines()
    assert "achieved / ideal                0.80        0.70        0.90" in lines
    assert lines[-1].split() == ["learner", "forward", "40%"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_are_clear_with_half_of_the_batch_replayed(name: str) -> None:
    config = workload(name)
    steps = {"control": 16, "mujoco": 32}.get(name, 20)
    assert (config.method, config.replay_fraction, config.runtime, config.unroll_steps) == (
        "clear",
        0.5,
        "local",
        steps,
    )
    assert config.lstm == (name.endswith("-lstm") or name == "vizdoom")


def test_a_workload_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'atari'"):
        workload("attari")


def test_a_measured_run_is_long_enough_for_evaluation_to_have_its_share() -> None:
    config = RunConfig(eval_every_frames=200_000)
    assert long_enough(config, 20.0, 50_000.0) == 20.0
    assert long_enough(config, 20.0, 6_000.0) == pytest.approx(40.0)
