from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from whole_runs import assert_same_runs, finish, kill_and_finish, rows, small_config

from clearl.config import RunConfig
from clearl.experiment import run

VARIANTS = {
    "feed-forward": small_config(),
    "lstm": small_config(lstm=True, tasks=("breakout", "breakout@1", "asterix")),
    "both": small_config(pairs="both", replay_ratio=0.7, diagnose_every_updates=5),
    "both, several draws, lstm": small_config(pairs="both", replay_ratio=2.5, lstm=True, replay_state="burn-in"),
    "tasks that fade into each other": small_config(protocol="overlap", frames_per_visit=400),
    "a drift in the middle of episodes": small_config(
        suite="control", tasks=("pendulum", "pendulum?g=5", "pendulum?g=2"), protocol="drift", drift_applied="at-once",
        torso="mlp", frames_per_visit=400,
    ),
    "scaled returns, lstm": small_config(scale_returns=True, lstm=True),
    "rmsprop, annealed, mixed tasks": small_config(optimizer="rmsprop", anneal=True, protocol="simultaneous"),
}  # fmt: skip


Reference = tuple[RunConfig, Path]


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=list(VARIANTS))
def reference(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """A run that nothing happened to."""
    out = tmp_path_factory.mktemp("reference") / "run"
    finish(request.param, out)
    return request.param, out


def check(reference: Reference, tmp_path: Path, *, runs: int, kills: int, seed: int) -> None:
    config, whole = reference
    rng, killed = random.Random(seed), 0
    for number in range(runs):
        out = tmp_path / str(number)
        killed += kill_and_finish(config, out, kills=kills, whole=whole, rng=rng)
        assert_same_runs(whole, out, config)
        assert not rows(out, "fault")
    assert killed >= runs * kills // 3, f"only {killed} of {runs * kills} kills hit a run that was still going"


def test_killed_and_resumed_equals_uninterrupted(reference: Reference, tmp_path: Path) -> None:
    check(reference, tmp_path, runs=2, kills=2, seed=1)


def test_progress_and_compress_is_resumed_exactly(tmp_path: Path) -> None:
    config = small_config(
        method="progress-compress+clear", lstm=True, fisher_batches=2, compress_frames=150, scale_returns=True
    )
    finish(config, tmp_path / "whole")
    check((config, tmp_path / "whole"), tmp_path, runs=2, kills=2, seed=3)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_twenty_of_twenty_runs_end_as_if_they_had_not_been_killed(
    reference: Reference, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    check(reference, tmp_path, runs=20, kills=1, seed=2)
    record_property("runs", "20 of 20 equal, bit for bit")


def test_the_same_seed_gives_the_same_run_in_the_same_process(tmp_path: Path) -> None:
    config = small_config(cycles=1)
    run(config, tmp_path / "a", console=False)
    run(config, tmp_path / "b", console=False)
    assert_same_runs(tmp_path / "a", tmp_path / "b", config)
