"""Sound environments that misbehave once, when a test asks for it.

A file named after the fault in the directory $FAULTS is the order; the environment that takes it renames it to
`<fault>.taken`, so that one order makes one fault, in whichever process comes first.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Walk(gymnasium.Env[np.ndarray, Any]):
    """A random walk on a line of 20 places; each kind of fault has a class of its own."""

    observation_space = Box(-1.0, 1.0, (3,), np.float32)
    action_space = Discrete(2)
    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form
    fault = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 10
        return self.see(), {}

    def step(self, action: Any) -> Any:
        self.place += 1 if action else -1
        outcome = (self.see(), float(self.place == 20), self.place in (0, 20), False, {})
        return self.misbehave(outcome) if self.ordered() else outcome

    def see(self) -> np.ndarray:
        return np.array([self.place / 20, 1 - self.place / 20, 0.5], np.float32)

    def ordered(self) -> bool:
        """Whether the fault has been ordered and nobody else has taken the order."""
        if not self.fault or "FAULTS" not in os.environ:
            return False
        order = Path(os.environ["FAULTS"]) / self.fault
        try:
            order.rename(order.with_suffix(".taken"))
        except FileNotFoundError:
            return False
        return True

    def misbehave(self, outcome: Any) -> Any:
        raise NotImplementedError


class Raise(Walk):
    fault = "raise"

    def misbehave(self, outcome: Any) -> Any:
        raise RuntimeError("the motor is on fire")


class Hang(Walk):
    fault = "hang"

    def misbehave(self, outcome: Any) -> Any:
        while True:
            time.sleep(3600)


class Abort(Walk):
    fault = "abort"

    def misbehave(self, outcome: Any) -> Any:
        os.kill(os.getpid(), signal.SIGABRT)


class NanObservation(Walk):
    fault = "nan-observation"

    def misbehave(self, outcome: Any) -> Any:
        return (np.full(3, np.nan, np.float32), *outcome[1:])


class InfReward(Walk):
    fault = "inf-reward"

    def misbehave(self, outcome: Any) -> Any:
        return (outcome[0], float("inf"), *outcome[2:])


class OtherShape(Walk):
    fault = "other-shape"

    def misbehave(self, outcome: Any) -> Any:
        return (np.zeros(4, np.float32), *outcome[1:])


for _kind in (Walk, Raise, Hang, Abort, NanObservation, InfReward, OtherShape):
    gymnasium.register(f"{_kind.__name__}-v0", entry_point=f"{__name__}:{_kind.__name__}")
