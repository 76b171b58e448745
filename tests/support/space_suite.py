"""A suite whose tasks have any spaces: observations are sampled, actions checked, and states can be saved."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from clearl.config import RunConfig
from clearl.seeding import derive
from clearl.spaces import TaskSpec
from clearl.suites import SUITES
from clearl.tasks.actions import MASK_KEY, TaskActions, common_actions, describe_actions
from clearl.tasks.observations import TaskObservations, common_observation, describe_observations
from clearl.tasks.writing import ObservationWriter
from clearl.types import EnvStep

LENGTH = 7
SPACES: dict[str, tuple[Any, Any]] = {}
"""Observation and action space of each task; a test puts them here."""
MASKED = [False]


class SpaceSuite:
    name = "spaces"
    default_tasks: ClassVar[tuple[str, ...]] = ()
    known_tasks: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[type | None] = None

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        self.tasks = tuple(tasks)
        self._observations = {task: TaskObservations(describe_observations(task, SPACES[task][0])) for task in tasks}
        self._actions = {task: TaskActions(describe_actions(task, SPACES[task][1])) for task in tasks}
        action = common_actions(self._actions)
        mask_size = action.mask_size if MASKED[0] and action.choices else 0
        observation = common_observation(self._observations, stack=config.frame_stack or 1, mask_size=mask_size)
        self.spec = TaskSpec(observation, action)

    def mask(self, task: str) -> np.ndarray:
        return self._actions[task].mask(self.spec.action)

    def actions(self, task: str) -> TaskActions:
        return self._actions[task]

    def observations(self, task: str) -> TaskObservations:
        return self._observations[task]

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> SpaceEnvs:
        return SpaceEnvs(self, task, num_envs, seed)

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        return np.zeros((8, 8, 3), np.uint8)


class SpaceEnvs:
    """Episodes of 7 steps, every second one cut by time; what is shown follows from seed, place and step alone."""

    def __init__(self, suite: SpaceSuite, task: str, num_envs: int, seed: int) -> None:
        self.num_envs, self._suite, self._task, self._seed = num_envs, suite, task, seed
        self._writer = ObservationWriter(suite.observations(task), suite.spec.observation)
        self._convert = suite.actions(task).converter(suite.spec.action)
        self._write_mask = suite.actions(task).mask_writer(suite.spec.action)
        self._spaces = copy.deepcopy(SPACES[task])
        self._time = 0

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        self._seed, self._time = self._seed if seed is None else seed, 0
        return self._frames()

    def step(self, actions: np.ndarray) -> EnvStep:
        for place, action in enumerate(self._convert(actions)):
            assert self._spaces[1].contains(action), f"{action} is not in {self._spaces[1]}"
            self._check_mask(place, actions[place])
        self._time += 1
        phase = self._time % (2 * LENGTH)
        full = [
            np.full(self.num_envs, flag) for flag in (phase == LENGTH, phase == 0, phase != 1, phase in (1, LENGTH))
        ]
        reward = np.sin(np.arange(self.num_envs) + self._time).astype(np.float32)
        return EnvStep(self._frames(), reward, *full)

    def get_state(self) -> dict[str, Any]:
        return {"seed": self._seed, "time": self._time}

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        self._seed, self._time = int(state["seed"]), int(state["time"])
        return self._frames()

    def close(self) -> None: ...

    def _frames(self) -> np.ndarray:
        spec = self._suite.spec.observation
        frames = np.zeros((self.num_envs, *spec.frame_shape), spec.frame_dtype)
        for place in range(self.num_envs):
            self._spaces[0].seed(derive(self._seed, place, self._time) & 0x7FFFFFFF)
            problem = self._writer.write(self._spaces[0].sample(), frames[place])
            if problem is None and spec.mask_size:
                problem = self._write_mask({MASK_KEY: self._allowed(place)}, frames[place])
            assert problem is None, problem
        return frames

    def _allowed(self, place: int) -> np.ndarray:
        """One option of each choice is not there, but where it has only one."""
        choices = self._suite.actions(self._task).choices
        hidden = (self._time + place) % 5
        return np.concatenate([(np.arange(count) != hidden % count) | (count == 1) for count in choices])

    def _check_mask(self, place: int, action: np.ndarray) -> None:
        if self._suite.spec.observation.mask_size:
            flags, start = self._allowed(place), 0
            for number, count in enumerate(self._suite.actions(self._task).choices):
                assert flags[start + int(np.ravel(action)[number])], "a masked action was taken"
                start += count


SUITES.register("spaces", "space_suite:SpaceSuite")
