"""A wrapper that fails at the first action that the state's mask forbids: `--wrappers mask_checker:MaskChecker`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class MaskChecker(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts what it lets through, in all environments together."""

    passed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.mask = np.array(info["action_mask"], bool)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert self.mask[action], f"action {action} is masked by {self.mask}"
        MaskChecker.passed += not self.mask.all()
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.mask = np.array(info["action_mask"], bool)
        return observation, reward, terminated, truncated, info
