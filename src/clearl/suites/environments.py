"""A base class for suites of single Gymnasium environments: it joins their spaces and steps them in one loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.spaces import TaskSpec
from clearl.tasks.actions import MASK_KEY, TaskActions, common_actions, describe_actions
from clearl.tasks.calls import close_env
from clearl.tasks.drawing import draw_record
from clearl.tasks.filming import RENDER_MODE, Camera, offered_modes
from clearl.tasks.gymnasium_vectors import GymnasiumVector
from clearl.tasks.loop import LoopEnvs, SingleEnv
from clearl.tasks.masks import mask_method, masks_states
from clearl.tasks.observations import TaskObservations, common_observation, describe_observations
from clearl.tasks.success import ANY_STEP
from clearl.tasks.suite import Envs, Scene
from clearl.tasks.writing import ObservationWriter


class EnvironmentSuite(ABC):
    """Smaller observations are padded with zeros, smaller action spaces masked. A suite says how a task is made."""

    name: str

    def __init__(
        self, tasks: Sequence[str], config: RunConfig, *, make_vector: Callable[[str, int], Any | None] | None = None
    ) -> None:
        """`make_vector` gives the `gymnasium.vector.VectorEnv` of a task and a number, None where it has none."""
        self.tasks = tuple(tasks)
        self._make_vector = make_vector or (lambda task, num_envs: None)
        self._sticky = config.sticky_action_probability or 0.0
        self._repeat = config.action_repeat or 1
        self._observations: dict[str, TaskObservations] = {}
        self._actions: dict[str, TaskActions] = {}
        self._render_modes: dict[str, tuple[str, ...]] = {}
        masked = []
        for task in self.tasks:
            observation_space, action_space, has_masks = self._look_at(task)
            self._observations[task] = TaskObservations(describe_observations(task, observation_space))
            self._actions[task] = TaskActions(describe_actions(task, action_space))
            masked += [task] if has_masks and self._actions[task].choices else []
        _check_held_actions(masked, config)
        action = common_actions(self._actions)
        mask_size = action.mask_size if masked else 0
        observation = common_observation(self._observations, stack=config.frame_stack or 1, mask_size=mask_size)
        self.spec = TaskSpec(observation, action, self._repeat)

    @abstractmethod
    def make_env(self, task: str, *, render_mode: str | None = None) -> Any:
        """Return a Gymnasium environment of the task."""

    def mask(self, task: str) -> np.ndarray:
        return self._actions[task].mask(self.spec.action)

    def actions(self, task: str) -> TaskActions:
        return self._actions[task]

    def observations(self, task: str) -> TaskObservations:
        return self._observations[task]

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> Envs:
        if (vector := self._make_vector(task, num_envs)) is not None:
            observations, actions = self._observations[task], self._actions[task]
            return GymnasiumVector(task, vector, seed=seed, spec=self.spec, observations=observations, actions=actions)
        return self._loop(task, partial(self.one, task), num_envs=num_envs, seed=seed)

    def make_scene(self, task: str, *, seed: int) -> Scene:
        camera = Camera(task, partial(self.one, task, render_mode=RENDER_MODE), self._render_modes[task])
        return Scene(self._loop(task, camera.make_env, num_envs=1, seed=seed), camera.last_picture)

    def _loop(self, task: str, make: Callable[[], SingleEnv], *, num_envs: int, seed: int) -> LoopEnvs:
        observation, action = self.spec.observation, self.spec.action
        return LoopEnvs(
            task,
            [make() for _ in range(num_envs)],
            seed=seed,
            frame_shape=observation.frame_shape,
            frame_dtype=observation.frame_dtype,
            writer=ObservationWriter(self._observations[task], observation),
            convert_actions=self._actions[task].converter(action),
            write_mask=self._actions[task].mask_writer(action) if observation.mask_size else None,
            rebuild=make,
        )

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        return draw_record(frame, self._observations[task], self.spec.observation)

    def _look_at(self, task: str) -> tuple[Any, Any, bool]:
        """Find the spaces of the task's environments, and whether they say what their states allow."""
        vector = self._make_vector(task, 1)
        env = self.make_env(task) if vector is None else vector
        spaces = (
            (env.observation_space, env.action_space)
            if vector is None
            else (env.single_observation_space, env.single_action_space)
        )
        has_masks = masks_states(task, env)
        self._render_modes[task] = () if vector is not None else offered_modes(env)
        close_env(task, env)
        if vector is not None and mask_method(vector) is not None:
            remedy = 'give the masks in info["action_mask"]'
            raise ConfigError(f"{task} is a vector environment, whose action_masks is not called; {remedy}")
        return (*spaces, has_masks)

    def one(self, task: str, *, render_mode: str | None = None) -> _Controls:
        """Return one environment of a task, with the action repeat and sticky actions of the run."""
        from gymnasium.wrappers import StickyAction

        env = self.make_env(task, render_mode=render_mode)
        return _Controls(StickyAction(env, self._sticky) if self._sticky else env, self._repeat)


def _check_held_actions(masked: Sequence[str], config: RunConfig) -> None:
    """Refuse settings that repeat actions in states that may forbid them."""
    for name in ("action_repeat", "sticky_action_probability"):
        if masked and getattr(config, name) not in (None, 0, 1):
            raise ConfigError(
                f"{masked[0]} has action masks, and {name} repeats actions in states that may forbid them; "
                "leave it at its default"
            )


class _Controls:
    """Holds each action for some frames; asks for masks as sb3-contrib does, where the info has none."""

    def __init__(self, env: Any, repeat: int) -> None:
        self._env, self._repeat = env, repeat
        self._ask_mask = mask_method(env)
        self._plain = repeat == 1 and self._ask_mask is None

    @property
    def unwrapped(self) -> Any:
        return self._env.unwrapped

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self._env.reset(seed=seed)
        return observation, self._with_mask(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._plain:
            return self._env.step(action)
        total, succeeded = 0.0, False
        for _ in range(self._repeat):
            observation, reward, terminated, truncated, info = self._env.step(action)
            total += float(reward)
            if succeeded:
                info = {**info, ANY_STEP: True}
            if terminated or truncated:
                break
            succeeded = self._repeat > 1 and bool(info.get(ANY_STEP))
        return observation, total, terminated, truncated, self._with_mask(info)

    def render(self) -> Any:
        if (mode := getattr(self._env, "render_mode", None)) != RENDER_MODE:
            raise TypeError(f"its render_mode is {mode!r}")
        return self._env.render()

    def close(self) -> None:
        self._env.close()

    def _with_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        if self._ask_mask is None or MASK_KEY in info:
            return info
        return {**info, MASK_KEY: self._ask_mask()}
