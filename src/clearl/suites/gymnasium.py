"""Any Gymnasium environments with discrete actions: `gym:CartPole-v1,Acrobot-v1`, or `gym:my_module:MyEnv-v0`."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from clearl.config import RunConfig
from clearl.errors import MissingExtraError
from clearl.spaces import PartDtype, discrete_spec
from clearl.suites.settings import GymnasiumSettings
from clearl.tasks.loop import LoopEnvs
from clearl.tasks.single import make_env
from clearl.tasks.spaces import FrameFormat, FrameWriter, common_format, draw_frame, frame_format, num_actions


class GymnasiumSuite:
    """Ids as tasks. Smaller observations are padded with zeros, smaller action sets masked."""

    name = "gym"
    default_tasks: ClassVar[tuple[str, ...]] = ()
    known_tasks: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[type | None] = GymnasiumSettings

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        if importlib.util.find_spec("gymnasium") is None:
            raise MissingExtraError("suite gym", "gymnasium", "install it with: pip install gymnasium")
        self.tasks = tuple(tasks)
        self._sticky = config.sticky_action_probability or 0.0
        self._repeat = config.action_repeat or 1
        self._formats: dict[str, FrameFormat] = {}
        self._actions: dict[str, int] = {}
        for task in self.tasks:
            env = make_env(task)
            self._formats[task] = frame_format(task, env.observation_space)
            self._actions[task] = num_actions(task, env.action_space)
            env.close()
        self._dtype: PartDtype
        shape, self._dtype = common_format(self._formats)
        self.spec = discrete_spec(
            shape, self._dtype, max(self._actions.values()), stack=config.frame_stack or 1, frames_per_step=self._repeat
        )

    def mask(self, task: str) -> np.ndarray:
        return np.arange(self.spec.action.mask_size) < self._actions[task]

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> LoopEnvs:
        return LoopEnvs(
            task,
            [_Controls(self._wrapped(task), self._repeat) for _ in range(num_envs)],
            seed=seed,
            frame_shape=self.spec.observation.frame_shape,
            frame_dtype=self._dtype,
            write_frame=FrameWriter(self._formats[task], self._dtype).write,
        )

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        own = tuple(slice(0, size) for size in self._formats[task].frame_shape)
        return draw_frame(frame[own])

    def _wrapped(self, task: str) -> Any:
        from gymnasium.wrappers import StickyAction

        env = make_env(task)
        return StickyAction(env, self._sticky) if self._sticky else env


class _Controls:
    """Numbers actions from 0 and holds each for some frames."""

    def __init__(self, env: Any, repeat: int) -> None:
        self._env, self._repeat = env, repeat
        self._start = int(env.action_space.start)

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        return self._env.reset(seed=seed)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._repeat):
            observation, reward, terminated, truncated, info = self._env.step(self._start + action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info

    def close(self) -> None:
        self._env.close()
