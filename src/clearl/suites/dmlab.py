"""DeepMind Lab: the paper's four levels through the package `deepmind_lab`, which users build themselves."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from clearl.config import RunConfig
from clearl.errors import MissingExtraError, UnknownNameError
from clearl.seeding import generator
from clearl.spaces import TaskSpec
from clearl.suites.first_person import HEIGHT, PICTURE, WIDTH, draw_first_person, first_person_envs, first_person_spec
from clearl.suites.settings import DmLabSettings
from clearl.tasks.loop import LoopEnvs
from clearl.tasks.observations import TaskObservations

OBSERVATION = "RGB_INTERLEAVED"
FOLDER = "contributed/dmlab30/"
# IMPALA's: look left-right, look down-up, strafe, move, fire, jump, crouch.
ACTIONS = np.array(
    [
        [0, 0, 0, 1, 0, 0, 0],  # forward
        [0, 0, 0, -1, 0, 0, 0],  # back
        [0, 0, -1, 0, 0, 0, 0],  # strafe left
        [0, 0, 1, 0, 0, 0, 0],  # strafe right
        [-20, 0, 0, 0, 0, 0, 0],  # look left
        [20, 0, 0, 0, 0, 0, 0],  # look right
        [-20, 0, 0, 1, 0, 0, 0],  # forward and look left
        [20, 0, 0, 1, 0, 0, 0],  # forward and look right
        [0, 0, 0, 0, 1, 0, 0],  # fire
    ],
    np.intc,
)
HOW_TO_GET_IT = (
    "it is in no package registry: build its pip package with Bazel as "
    "https://github.com/google-deepmind/lab/blob/master/python/pip_package/README.md says, or train on suite vizdoom"
)


class DmLabSuite:
    """Levels of DMLab-30, by name. The first three are the paper's sequence, the fourth is its probe."""

    name = "dmlab"
    known_tasks: ClassVar[tuple[str, ...]] = (
        "explore_object_locations_small",
        "rooms_collect_good_objects_train",
        "rooms_keys_doors_puzzle",
        "natlab_varying_map_randomized",
    )
    default_tasks: ClassVar[tuple[str, ...]] = known_tasks[:3]
    settings: ClassVar[type | None] = DmLabSettings

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        UnknownNameError.check("task of suite dmlab", tasks, self.known_tasks)
        if importlib.util.find_spec("deepmind_lab") is None:
            raise MissingExtraError("suite dmlab", "deepmind_lab", HOW_TO_GET_IT)
        self.tasks = tuple(tasks)
        self.spec = self.spec_for(config)
        self._cache = LevelCache(Path(config.level_cache)) if config.level_cache else None

    @staticmethod
    def spec_for(config: RunConfig) -> TaskSpec:
        """Return the spec that all tasks share; known without the package, for forecasts."""
        return first_person_spec(len(ACTIONS), config)

    def mask(self, task: str) -> np.ndarray:
        return np.ones(len(ACTIONS), bool)

    def observations(self, task: str) -> TaskObservations:
        return PICTURE

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> LoopEnvs:
        return first_person_envs(task, num_envs, seed=seed, spec=self.spec, make_env=partial(self._one, task))

    def _one(self, task: str) -> LabEnv:
        return LabEnv(task, repeat=self.spec.frames_per_step, cache=self._cache)

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        return draw_first_person(frame)


class LabEnv:
    """One Lab, with Gymnasium's methods."""

    def __init__(self, level: str, *, repeat: int, cache: LevelCache | None) -> None:
        import deepmind_lab  # pyright: ignore[reportMissingImports]  # users build it themselves

        self._repeat = repeat
        self._rng = generator(0, "dmlab")
        self._episode = 0
        self._last = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        self._lab = deepmind_lab.Lab(
            FOLDER + level,
            [OBSERVATION],
            config={"width": str(WIDTH), "height": str(HEIGHT), "logLevel": "WARNING"},  # Lab takes strings only
            renderer="software",
            level_cache=cache,
        )

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self._rng, self._episode = generator(seed, "dmlab"), 0
        # The number of the episode is given too: Lab would go on counting from what was played before.
        self._lab.reset(episode=self._episode, seed=int(self._rng.integers(2**31)))
        self._episode += 1
        return self._see(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Step. An end of a level terminates, even by its time limit (as in IMPALA): Lab does not tell which it was."""
        reward = self._lab.step(ACTIONS[action], num_steps=self._repeat)
        if not self._lab.is_running():
            return self._last, reward, True, False, {}
        return self._see(), reward, False, False, {}

    def close(self) -> None:
        self._lab.close()

    def _see(self) -> np.ndarray:
        self._last = self._lab.observations()[OBSERVATION]
        return self._last


class LevelCache:
    """Compiled levels in a folder that all workers share; to compile one takes seconds to minutes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copy the level `key` to where Lab wants it; False if it is not here."""
        try:
            shutil.copyfile(self._path(key), pk3_path)
        except FileNotFoundError:
            return False
        return True

    def write(self, key: str, pk3_path: str) -> None:
        """Keep a level that Lab has compiled. It is renamed into place, so that no worker sees a part of it."""
        target = self._path(key)
        if target.exists():
            return
        partial = target.with_suffix(f".{os.getpid()}.partial")
        shutil.copyfile(pk3_path, partial)
        partial.replace(target)

    def _path(self, key: str) -> Path:
        return self._folder / f"{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}.pk3"
