"""The forecast counts what an update costs: arms with more replay on top take longer."""

from __future__ import annotations

import pytest

from clearl.config import RunConfig
from clearl.errors import MissingExtraError
from clearl.reproduce import forecast
from clearl.reproduce.catalog import EXPERIMENTS, PlannedRun, Scale, planned_runs


def test_arms_with_larger_updates_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, str]] = []

    def measure(config: RunConfig, seconds: float) -> float:
        measured.append((config.method, config.pairs))
        return 100.0 if config.pairs == "either" else 25.0

    monkeypatch.setattr(forecast, "measure", measure)
    configs = [RunConfig(method="baseline"), RunConfig(), RunConfig(pairs="both"), RunConfig(pairs="both", seed=1)]
    assert forecast._speed(configs, [1000, 1000, 500, 500], 1.0) == pytest.approx(3000 / (20 + 40))
    assert measured == [("clear", "either"), ("clear", "both")]


def one_run_of_each_suite() -> dict[str, PlannedRun]:
    """A run with replay on every suite that the experiments use and that brings a package of its own."""
    scales: tuple[Scale, ...] = ("laptop", "paper")
    found: dict[str, PlannedRun] = {}
    for name, experiment in EXPERIMENTS.items():
        for scale in scales[: 1 if experiment.beyond else 2]:
            runs = planned_runs(name, scale, seeds=1)
            found = {run.config.suite: run for run in runs if run.config.method == "clear"} | found
    return {suite: run for suite, run in found.items() if not suite.startswith("gym")}


@pytest.mark.parametrize("suite", ["minatar", "atari", "dmlab", "mujoco"])
def test_bytes_and_hours_are_told_for_suites_that_are_not_installed(
    suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = one_run_of_each_suite()
    assert suite in runs, f"the experiments use {sorted(runs)}"

    def missing(config: RunConfig) -> int:
        raise MissingExtraError(f"suite {suite}", "a package", "install it")

    monkeypatch.setattr(forecast, "run_frames", missing)
    monkeypatch.setattr(forecast, "measure_learner", lambda config, seconds: 100.0)
    (row,) = forecast.forecast([runs[suite]])
    assert row.missing and "install it" in row.missing
    assert row.replay_bytes > 1e6 and row.frames > 1e5
    assert row.hours(1) == pytest.approx(row.frames / 100 / 3600)
