"""Environments of every kind go through all verbs: trained, evaluated, filmed, exported, and played by the agent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import robot_env  # noqa: F401 - registers it
from gymnasium.spaces import Box, Discrete
from mask_checker import MaskChecker
from PIL import Image
from whole_runs import small_config

import clearl
from clearl.cli.main import main
from clearl.config import resolve
from clearl.experiment import run
from clearl.records.reader import read_rows
from clearl.records.schema import METRICS_FILE


class Picture(gymnasium.Env[np.ndarray, Any]):
    """Shows an image of 84x80 pixels."""

    observation_space, action_space = Box(0, 255, (84, 80, 3), np.uint8), Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros((84, 80, 3), np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.zeros((84, 80, 3), np.uint8), 1.0, False, True, {}


gymnasium.register("Picture-v0", lambda **options: Picture())

KINDS: dict[str, dict[str, Any]] = {
    "FrozenLake-v1": {},
    "Blackjack-v1": {},
    "Taxi-v4": {"wrappers": ("mask_checker:MaskChecker",)},
    "Pendulum-v1": {"normalise_observations": True, "scale_returns": True, "layer_norm": True, "action_std": "free"},
    "Robot-v0": {"normalise_observations": True, "lstm": True, "frame_stack": 2, "imports": ("robot_env",)},
}


@pytest.mark.parametrize("env_id", KINDS)
def test_a_kind_is_trained_evaluated_filmed_exported_and_played(env_id: str, tmp_path: Path) -> None:
    changes = {"suite": f"gym:{env_id}", "tasks": (), "torso": "auto", "cycles": 1, **KINDS[env_id]}
    MaskChecker.passed = 0
    run(small_config(**changes), tmp_path / "run", console=False)
    losses = [row["loss"] for row in read_rows(tmp_path / "run" / METRICS_FILE) if row["kind"] == "train"]
    assert len({loss["value"] for loss in losses}) > 1 and all(map(math.isfinite, losses[-1].values()))
    assert not KINDS[env_id].get("wrappers") or MaskChecker.passed > 100, "a state's mask was at work"

    trusted = [str(tmp_path / "run"), "--trust"]
    assert main(["eval", *trusted, "--episodes", "2"]) == 0
    assert main(["video", *trusted, "--max-steps", "4"]) == 0
    with Image.open(tmp_path / "run" / "videos" / f"{env_id}.gif") as film:
        assert min(film.size) > 8
    assert main(["export", *trusted, "--out", str(tmp_path / "agent")]) == 0
    _check_plays(tmp_path / "agent", env_id)


def _check_plays(agent_path: Path, env_id: str) -> None:
    """Single observations and batches of them get actions of the environment's own space."""
    agent, env = clearl.load_agent(agent_path), gymnasium.make(env_id)
    observation, info = env.reset(seed=0)
    for _ in range(5):
        action = agent.act(observation, mask=info.get("action_mask"))
        assert env.action_space.contains(action), action
        observation, _, _, _, info = env.step(action)
    agent.reset()
    many = _batch([env.reset(seed=seed)[0] for seed in range(3)])
    actions = agent.act(many)
    assert len(actions) == 3 and all(env.action_space.contains(action) for action in actions)
    env.close()


def _batch(observations: list[Any]) -> Any:
    first = observations[0]
    if isinstance(first, dict):
        return {key: np.stack([each[key] for each in observations]) for key in first}
    if isinstance(first, tuple):
        return tuple(np.stack(parts) for parts in zip(*observations, strict=True))
    return np.stack(observations)


def test_a_torso_that_does_not_fit_images_is_told_in_one_line(tmp_path: Path, capsys: Any) -> None:
    command = ["run", "--suite", "gym:Picture-v0", "--out", str(tmp_path / "a"), "--torso"]
    assert main([*command, "minatar", "--dry-run"]) == 0
    assert capsys.readouterr().err == (
        "clearl: observations are images of 3x84x80, and torso 'minatar' has a layer of millions of weights for them; "
        "--torso auto takes 'impala_shallow'\n"
    )
    tiny = ["--runtime", "inline", "--slots", "2", "--batch-unrolls", "2", "--unroll-steps", "2", "--quiet"]
    tiny += ["--frames-per-visit", "8", "--eval-episodes", "1"]
    for said in (1, 0):  # when the run is made, and not again when it is there
        assert main([*command, "mlp", *tiny]) == 0
        assert capsys.readouterr().err.count("reads them as flat vectors") == said


def test_the_preset_of_classic_control_takes_a_torso_for_images(capsys: Any) -> None:
    command = ["run", "--preset", "gym-classic", "--suite", "gym:Picture-v0", "--out", "nowhere", "--dry-run"]
    assert main(command) == 0
    assert capsys.readouterr().err == ""
    assert resolve(preset="gym-classic").torso == "auto"
