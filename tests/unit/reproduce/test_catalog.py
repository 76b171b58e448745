"""The catalogue: the paper's arms, each run once, the same frames for all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearl.errors import ConfigError, UnknownNameError
from clearl.report.arms import LABELS
from clearl.reproduce.catalog import ARMS, EXPERIMENTS, planned_runs
from clearl.reproduce.forecast import plain_frames
from clearl.wiring import planned, run_frames

PAPERS_ARMS = {
    "interference": {"separate", "simultaneous", "sequential"},
    "stability": {"separate", "simultaneous", "sequential", "clear", "clear-no-cloning"},
    "plasticity": {"sequential", "clear", "clear-100-replay"},
    "balance": {"sequential", "clear-75-25", "clear", "clear-100-replay"},
    "buffers": {"sequential", "clear", "clear-buffer-1/18", "clear-buffer-1/180"},
    "comparison": {"sequential", "clear-75-25", "ewc", "online-ewc", "progress-compress", "progress-compress+clear"},
}


@pytest.mark.parametrize("name", PAPERS_ARMS)
@pytest.mark.parametrize("scale", ["smoke", "laptop"])
def test_every_experiment_has_its_arms(name: str, scale: str) -> None:
    runs = planned_runs(name, scale)  # type: ignore[arg-type]
    assert {run.arm for run in runs if run.sequence == "schemes"} == PAPERS_ARMS[name]


def test_reports_know_every_arm() -> None:
    assert set(ARMS) <= set(LABELS)


def test_laptop_scale_has_five_seeds_four_cycles_and_the_games_where_it_matters() -> None:
    runs = planned_runs("stability", "laptop")
    schemes = [run for run in runs if run.sequence == "schemes"]
    assert {run.config.seed for run in schemes} == set(range(5))
    assert {run.config.cycles for run in schemes} == {4}
    games = [run for run in runs if run.sequence == "games"]
    assert {run.config.seed for run in games} == set(range(3))
    assert {run.config.frames_per_visit for run in games} == {700_000}


def test_the_comparison_has_two_of_the_papers_games_at_laptop_scale() -> None:
    atari = [run for run in planned_runs("comparison", "laptop") if run.sequence == "atari"]
    assert [run.arm for run in atari] == ["sequential", "clear-75-25"]
    assert {run.config.suite for run in atari} == {"atari"} and {len(run.config.tasks) for run in atari} == {2}


def test_paper_scale_is_the_papers() -> None:
    dmlab = planned_runs("stability", "paper")
    assert {plain_frames(run.config) for run in dmlab} == {900_000_000}
    assert {run.config.seed for run in dmlab} == {0, 1, 2}
    atari = planned_runs("comparison", "paper")
    assert {plain_frames(run.config) for run in atari} == {6 * 5 * 50_000_000}
    assert {run.config.replay_fraction for run in atari if run.arm == "clear-75-25"} == {0.25}


def test_buffers_are_those_of_the_paper() -> None:
    sizes = {run.arm: run.config.buffer_size_frames(900_000_000) for run in planned_runs("buffers", "paper")}
    assert sizes["clear"] == 450_000_000
    assert abs(sizes["clear-buffer-1/18"] - 50_000_000) <= 1 and abs(sizes["clear-buffer-1/180"] - 5_000_000) <= 1


def test_an_arm_that_two_experiments_share_is_one_run() -> None:
    stability = {run.path: run.config for run in planned_runs("stability", "laptop")}
    balance = {run.path: run.config for run in planned_runs("balance", "laptop")}
    shared = stability.keys() & balance.keys()
    assert "runs/schemes/clear/seed-0" in shared
    assert all(stability[path] == balance[path] for path in shared)


def test_streams_have_no_boundaries_and_the_same_frames_for_every_arm() -> None:
    with pytest.raises(ConfigError, match="streams is no experiment of the paper"):
        planned_runs("streams", "paper")
    runs = planned_runs("streams", "laptop")
    assert {run.config.seed for run in runs} == set(range(5))
    for sequence in dict.fromkeys(run.sequence for run in runs):
        arms = {run.arm: run.config for run in runs if run.sequence == sequence and run.config.seed == 1}
        assert arms.keys() == {"separate", "simultaneous", "sequential", "clear", "l2-init+clear"}
        assert len({run_frames(config) for config in arms.values()}) == 1
        (plan,) = planned(arms["clear"])
        assert plan.has_boundaries == (sequence == "schemes-random")
        with pytest.raises(ConfigError, match="has to be told where a task ends"):
            planned(replace(arms["clear"], method="ewc", protocol="overlap"))


def test_control_has_five_seeds_of_continuous_actions_with_the_same_frames_for_every_arm() -> None:
    assert set(EXPERIMENTS) == {*PAPERS_ARMS, "streams", "pendulum", "mujoco", "control", "changed-actions"}
    with pytest.raises(ConfigError, match="control is no experiment of the paper"):
        planned_runs("control", "paper")
    runs = planned_runs("control", "laptop")
    assert {run.config.seed for run in runs} == set(range(5))
    assert {run.sequence: run.config.suite for run in runs} == {"control-schemes": "control", "directions": "mujoco"}
    for sequence in ("control-schemes", "directions"):
        configs = {(run.arm, run.config.seed): run.config for run in runs if run.sequence == sequence}
        assert {arm for arm, _ in configs} == {"simultaneous", "sequential", "clear", "clear-both"}
        assert len(configs) == 20 and len({config.frames_per_visit for config in configs.values()}) == 1
        assert {config.pairs for (arm, _), config in configs.items() if arm == "clear-both"} == {"both"}
    assert len({run_frames(run.config) for run in runs if run.config.suite == "control"}) == 1


@pytest.mark.parametrize("name", PAPERS_ARMS)
def test_paths_tell_all_runs_apart(name: str) -> None:
    for scale in ("smoke", "laptop", "paper"):
        paths = [run.path for run in planned_runs(name, scale)]  # type: ignore[arg-type]
        assert len(set(paths)) == len(paths)
        assert not any(".." in path or path.count("/") != 3 for path in paths)


def test_probes_come_at_several_positions() -> None:
    runs = planned_runs("plasticity", "laptop", seeds=1)
    assert {run.config.probe_position for run in runs} == {0, 5, 10}
    assert {run.config.protocol for run in runs} == {"probe"}


def test_an_unknown_experiment_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'stability'"):
        planned_runs("stabilty", "smoke")
