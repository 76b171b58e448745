"""What an environment must not give or get: named with task, slot, step and part, or handled."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from robot_env import Robot

from clearl.config import RunConfig
from clearl.errors import EnvironmentFaultError
from clearl.suites import make_suite


class BadRobot(Robot):
    """From its third step on one part of its observations is wrong."""

    def __init__(self, wrong: str = "") -> None:
        self.wrong = wrong

    def see(self) -> dict[str, Any]:
        seen: dict[str, Any] = super().see()
        if self.time < 3:
            return seen
        if self.wrong == "missing":
            del seen["goal"]
        elif self.wrong == "batched":
            seen["joints"] = seen["joints"][None]
        elif self.wrong == "shape":
            seen["camera"] = seen["camera"][:8]
        elif self.wrong == "dtype":
            seen["camera"] = seen["camera"] / 255
        elif self.wrong == "not_finite":
            seen["joints"] = np.full(4, np.nan)
        elif self.wrong == "ragged":
            seen["goal"] = [1.0, [2.0]]
        elif self.wrong == "text":
            seen["joints"] = "left"
        elif self.wrong == "bare":
            return seen["joints"]
        elif self.wrong == "bounds":
            seen["goal"] = np.array([5.0, -5.0], np.float32)
        return seen


class Narrow(Robot):
    """Actions in float64, of which one cannot move, one has no bounds and one has half of them."""

    action_space = Box(np.array([0.5, -np.inf, 0.0]), np.array([0.5, np.inf, np.inf]), dtype=np.float64)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action) and action.dtype == np.float64, action
        self.got = action
        return self.see(), 0.0, False, False, {}


gymnasium.register("BadRobot-v0", entry_point=BadRobot)  # pyright: ignore[reportArgumentType]  # a class is a creator
gymnasium.register("Narrow-v0", entry_point=Narrow)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("missing", "part 'goal' of the observation is missing or no array: KeyError"),
        ("batched", r"the observation's part 'joints' has shape \(1, 4\) instead of \(4,\)"),
        ("shape", r"the observation's part 'camera' has shape \(8, 16, 3\) instead of \(16, 16, 3\)"),
        ("dtype", "the observation's part 'camera' has dtype float64 instead of uint8"),
        ("not_finite", "the observation's part 'joints' holds NaN or infinity"),
        ("ragged", "part 'goal' of the observation is missing or no array: ValueError"),
        ("text", "the observation's part 'joints' has shape"),
        ("bare", "part 'camera' of the observation is missing or no array"),
    ],
)
def test_a_wrong_part_is_named_with_its_place(wrong: str, problem: str) -> None:
    task = f"BadRobot-v0?wrong={wrong}"
    # A suite rebuilds an environment that fails once; one that fails again soon is broken.
    envs = make_suite(f"gym:{task}", (), RunConfig()).make(task, num_envs=2, seed=0)
    envs.reset()
    with pytest.raises(EnvironmentFaultError, match=rf"task '{task.replace('?', '.')}', slot 0, step \d+: {problem}"):
        for _ in range(12):
            envs.step(np.zeros((2, 2), np.float32))


def test_numbers_beyond_the_bounds_of_a_box_are_taken_as_they_are() -> None:
    """Bounds of observations are often wrong and nothing depends on them; `clearl check` warns."""
    task = "BadRobot-v0?wrong=bounds"
    envs = make_suite(f"gym:{task}", (), RunConfig()).make(task, num_envs=1, seed=0)
    envs.reset()
    for _ in range(3):
        frames = envs.step(np.zeros((1, 2), np.float32)).frames
    assert frames["goal"].tolist() == [[5.0, -5.0]]


def test_a_box_of_zero_width_or_without_bounds_gets_what_lies_in_it() -> None:
    suite = make_suite("gym:Narrow-v0", (), RunConfig())
    assert suite.spec.action.bounded == (True, False, False)
    envs = suite.make("Narrow-v0", num_envs=3, seed=0)
    envs.reset()
    envs.step(np.array([[9, 9, 9], [-9, -9, -9], [0, 1e30, -1e30]], np.float32))  # the environment checks them
