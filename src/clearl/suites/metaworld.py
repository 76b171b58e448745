"""Meta-World: a robot arm with 50 tasks of manipulation, among them those of Continual World (CW10).

As in Continual World an episode has 200 steps, a task draws one of 50 goals for each, and the observation says which
task it is: its 39 coordinates mean other things in every task. An episode is a success if any of its steps is.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from clearl.config import RunConfig
from clearl.errors import MissingExtraError, UnknownNameError
from clearl.seeding import generator
from clearl.spaces import ActionSpec, ObservationSpec, PartSpec, TaskSpec
from clearl.suites.environments import EnvironmentSuite

EPISODE_STEPS = 200
COORDINATES = 39
ACTIONS = 4
"""Numbers of an action: three move the hand, one closes the gripper."""
CAMERA = "corner2"
"""Sees the objects; from the default place the arm hides them."""
GOALS_SEED = 0
"""Decides the goals of every task, which are the same in all runs."""
CW10 = (
    "hammer", "push-wall", "faucet-close", "push-back", "stick-pull",
    "handle-press-side", "push", "shelf-place", "window-close", "peg-unplug-side",
)  # fmt: skip
TASKS = (
    *CW10,
    "assembly", "basketball", "bin-picking", "box-close", "button-press", "button-press-topdown",
    "button-press-topdown-wall", "button-press-wall", "coffee-button", "coffee-pull", "coffee-push", "dial-turn",
    "disassemble", "door-close", "door-lock", "door-open", "door-unlock", "drawer-close", "drawer-open", "faucet-open",
    "hand-insert", "handle-press", "handle-pull", "handle-pull-side", "lever-pull", "peg-insert-side",
    "pick-out-of-hole", "pick-place", "pick-place-wall", "plate-slide", "plate-slide-back",
    "plate-slide-back-side", "plate-slide-side", "reach", "reach-wall", "soccer", "stick-push", "sweep",
    "sweep-into", "window-open",
)  # fmt: skip


class MetaWorldSuite(EnvironmentSuite):
    """Meta-World's tasks by the names of its third version, without the ending."""

    name = "metaworld"
    slow_steps: ClassVar[bool] = True
    default_tasks: ClassVar[tuple[str, ...]] = CW10
    known_tasks: ClassVar[tuple[str, ...]] = TASKS
    settings: ClassVar[type | None] = None

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        if importlib.util.find_spec("metaworld") is None:
            raise MissingExtraError("suite metaworld", "metaworld", "install it with: pip install 'clearl[metaworld]'")
        UnknownNameError.check("task of suite metaworld", tasks, TASKS)
        super().__init__(tasks, config)

    @staticmethod
    def spec_for(config: RunConfig) -> TaskSpec:
        """Return the spec that all tasks share; known without the package, for forecasts."""
        parts = {"state": PartSpec((COORDINATES,), "float32"), "task": PartSpec((len(TASKS),), "bool")}
        return TaskSpec(ObservationSpec(parts, config.frame_stack or 1), ActionSpec(bounded=(True,) * ACTIONS))

    def make_env(self, task: str, *, render_mode: str | None = None) -> Any:
        return ArmEnv(task, render_mode=render_mode)


@functools.cache
def _benchmark(task: str) -> tuple[Any, tuple[Any, ...]]:
    """Return the class of a task's environment and its 50 goals; takes half a second."""
    import metaworld

    made = metaworld.MT1(f"{task}-v3", seed=GOALS_SEED)
    return made.train_classes[f"{task}-v3"], tuple(made.train_tasks)


class ArmEnv:
    """One task with Gymnasium's methods, whose seed decides the goals, too."""

    def __init__(self, task: str, *, render_mode: str | None = None) -> None:
        from gymnasium.spaces import Box, Dict, Discrete

        make, self._goals = _benchmark(task)
        self._env, self._number = make(render_mode=render_mode, camera_name=CAMERA), TASKS.index(task)
        self.metadata, self.render_mode = self._env.metadata, render_mode
        self._env.set_task(self._goals[0])
        self._rng = generator(0, "metaworld")
        self._steps = 0
        # Its own bounds are too narrow for its observations.
        shape = self._env.observation_space.shape
        self.observation_space = Dict({"state": Box(-np.inf, np.inf, shape, np.float64), "task": Discrete(len(TASKS))})
        self.action_space = self._env.action_space

    @property
    def unwrapped(self) -> Any:
        return self._env

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = generator(seed, "metaworld")
        self._env.set_task(self._goals[int(self._rng.integers(len(self._goals)))])
        state, info = self._env.reset(seed=int(self._rng.integers(2**31)))
        self._steps = 0
        return self._see(state), info

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        state, reward, terminated, _, info = self._env.step(action)
        self._steps += 1
        return self._see(state), float(reward), bool(terminated), self._steps >= EPISODE_STEPS, info

    def render(self) -> np.ndarray:
        return np.rot90(self._env.render(), 2)  # the camera hangs upside down

    def close(self) -> None:
        self._env.close()

    def _see(self, state: np.ndarray) -> dict[str, Any]:
        return {"state": state, "task": self._number}
