"""A sound environment, `Faulty-v0`, that misbehaves once when a test asks for it.

A file named after the fault in the directory $FAULTS is the order; the environment that takes it renames it to
`<fault>.taken`, so that one order makes one fault, in whichever process comes first. While there is a file `always`,
every step of every environment raises; if it holds the number of a process, that one gets SIGHUP first.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

Outcome = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


def _raise(outcome: Outcome) -> Outcome:
    raise RuntimeError("the motor is on fire")


def _hang(outcome: Outcome) -> Outcome:
    while True:
        time.sleep(3600)


def _abort(outcome: Outcome) -> Outcome:
    os.kill(os.getpid(), signal.SIGABRT)
    return outcome


def _exit(outcome: Outcome) -> Outcome:
    raise SystemExit(0)


def _exit_at_once(outcome: Outcome) -> Outcome:
    os._exit(0)


FAULTS: dict[str, Callable[[Outcome], Outcome]] = {
    "raise": _raise,
    "hang": _hang,
    "hang-evaluation": _hang,
    "abort": _abort,
    "exit": _exit,
    "exit-at-once": _exit_at_once,
    "nan": lambda outcome: (np.full(3, np.nan, np.float32), *outcome[1:]),
    "inf": lambda outcome: (outcome[0], float("inf"), *outcome[2:]),
    "shape": lambda outcome: (np.zeros(4, np.float32), *outcome[1:]),
}


class Faulty(gymnasium.Env[np.ndarray, Any]):
    """A walk on a line of 20 places, from the middle to either end."""

    observation_space = Box(-1.0, 1.0, (3,), np.float32)
    action_space = Discrete(2)
    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 10
        return self.see(), {}

    def step(self, action: Any) -> Outcome:
        self.place += 1 if action else -1
        outcome = (self.see(), float(self.place == 20), self.place in (0, 20), False, {})
        always = Path(os.environ.get("FAULTS", "/nowhere")) / "always"
        if always.exists():
            if leader := always.read_text():
                os.kill(int(leader), signal.SIGHUP)
            _raise(outcome)
        for name, misbehave in FAULTS.items():
            if (name != "hang-evaluation" or in_evaluator()) and ordered(name):
                return misbehave(outcome)
        return outcome

    def see(self) -> np.ndarray:
        return np.array([self.place / 20, 1 - self.place / 20, 0.5], np.float32)


def in_evaluator() -> bool:
    """Return whether this process is an evaluator; the kernel keeps 15 letters of its name."""
    return Path("/proc/self/comm").read_text().startswith("clearl:evaluato")


def ordered(fault: str) -> bool:
    """Return whether the fault has been ordered and no other process has taken the order."""
    order = Path(os.environ.get("FAULTS", "/nowhere")) / fault
    try:
        os.rename(order, f"{order}.taken")
    except OSError:
        return False
    return True


class Leaving(Faulty):
    """Ends its process, without a word, after 200 steps of all that it holds."""

    steps = 0

    def step(self, action: Any) -> Outcome:
        Leaving.steps += 1
        if Leaving.steps == 200:
            os._exit(3)
        return super().step(action)


gymnasium.register("Faulty-v0", entry_point=f"{__name__}:Faulty")
gymnasium.register("Leaving-v0", entry_point=f"{__name__}:Leaving")
