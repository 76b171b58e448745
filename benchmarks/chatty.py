"""Two environments of the cost of CartPole: `Chatty-v0` prints 300 bytes at each step, `Silent-v0` nothing."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class Chatty(CartPoleEnv):
    """Prints a line at each step, as simulators do that were not meant to be quiet."""

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self._line = "x" * (nbytes - 1)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._line:
            print(self._line, flush=True)
        return super().step(action)


gymnasium.register("Chatty-v0", f"{__name__}:Chatty", max_episode_steps=500, kwargs={"nbytes": 300})
gymnasium.register("Silent-v0", f"{__name__}:Chatty", max_episode_steps=500, kwargs={"nbytes": 1})
