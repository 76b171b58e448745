"""A robot-like environment, registered as `Robot-v0` on import: a camera, joints and a goal; the arm's two drives."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

LIMIT = 12
NEAR = 0.7


class Robot(gymnasium.Env[Any, Any]):
    """A hand in the plane that is to be at the goal; a step in which it is there tells of success."""

    observation_space = Dict(
        {
            "camera": Box(0, 255, (16, 16, 3), np.uint8),
            "joints": Box(-np.inf, np.inf, (4,), np.float64),
            "goal": Box(-1.0, 1.0, (2,), np.float32),
        }
    )
    action_space = Box(-1.0, 1.0, (2,), np.float32)
    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.speed, self.time = np.zeros(2), np.zeros(2), 0
        self.goal = self.np_random.uniform(-1, 1, 2)
        return self.see(), {"success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.time += 1
        self.speed = 0.5 * self.speed + 0.2 * action
        self.place = np.clip(self.place + self.speed, -1, 1)
        distance = float(np.linalg.norm(self.place - self.goal))
        return self.see(), -distance, False, self.time == LIMIT, {"success": distance < NEAR}

    def see(self) -> dict[str, np.ndarray]:
        camera = np.zeros((16, 16, 3), np.uint8)
        for channel, place in enumerate((self.place, self.goal)):
            row, column = np.rint(7.5 + 7.5 * place).astype(int)
            camera[row, column, channel] = 255
        joints = np.concatenate([self.place, self.speed])
        return {"camera": camera, "joints": joints, "goal": self.goal.astype(np.float32)}


gymnasium.register("Robot-v0", entry_point="robot_env:Robot")
