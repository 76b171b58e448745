"""Atari 2600 games through ale-py's C++ vector environment: 84x84, all 18 actions, scores as the game gives them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from clearl.config import RunConfig
from clearl.errors import MissingExtraError, UnknownNameError
from clearl.seeding import derive
from clearl.spaces import TaskSpec, discrete_spec
from clearl.suites.settings import AtariSettings
from clearl.tasks.autoreset import NextStepAutoreset
from clearl.tasks.drawing import draw_frame
from clearl.tasks.vectors import env_threads
from clearl.types import EnvStep

NUM_ACTIONS = 18
SIZE = 84
GREY_STACK = 4
PIXEL_SCALE = 4


class AtariSuite:
    """Any game whose ROM ale-py bundles, by its snake-case name. Frames are grey, or RGB as in Progress & Compress."""

    name = "atari"
    default_tasks: ClassVar[tuple[str, ...]] = (
        "space_invaders", "krull", "beam_rider", "hero", "star_gunner", "ms_pacman",
    )  # fmt: skip
    known_tasks: ClassVar[tuple[str, ...]] = default_tasks
    settings: ClassVar[type | None] = AtariSettings

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        if importlib.util.find_spec("ale_py") is None:
            raise MissingExtraError("suite atari", "ale-py", "install it with: pip install 'clearl[atari]'")
        self.tasks = tuple(tasks)
        _check_roms(self.tasks)
        self.spec = self.spec_for(config)
        self._noop_max = config.noop_max
        self._sticky = config.sticky_action_probability or 0.0
        self._life_loss = config.life_loss_terminates

    @staticmethod
    def spec_for(config: RunConfig) -> TaskSpec:
        """Return the spec that all tasks share; known without the package, for forecasts."""
        grey = config.grayscale is not False
        return discrete_spec(
            frame_shape=(1 if grey else 3, SIZE, SIZE),
            frame_dtype="uint8",
            num_actions=NUM_ACTIONS,
            stack=config.frame_stack or (GREY_STACK if grey else 1),
            frames_per_step=config.action_repeat or 4,
        )

    def mask(self, task: str) -> np.ndarray:
        return np.ones(NUM_ACTIONS, bool)

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> AtariEnvs:
        from ale_py import ALEInterface, LoggerMode
        from ale_py.vector_env import AtariVectorEnv

        ALEInterface.setLoggerMode(LoggerMode.Error)  # no banner for every environment
        vector = AtariVectorEnv(
            task,
            num_envs,
            num_threads=min(env_threads(), num_envs),
            repeat_action_probability=self._sticky,
            full_action_space=True,
            grayscale=self.spec.observation.frame_shape[0] == 1,
            stack_num=1,  # frames are stored once and stacked on the way to the network
            frameskip=self.spec.frames_per_step,
            maxpool=self.spec.frames_per_step > 1,
            noop_max=self._noop_max,
            reward_clipping=False,  # the learner clips; evaluation reports the score
            use_fire_reset=False,
        )
        return AtariEnvs(vector, seed=seed, life_loss_terminates=self._life_loss and training)

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        return draw_frame(frame).repeat(PIXEL_SCALE, 0).repeat(PIXEL_SCALE, 1)


class AtariEnvs:
    """One game in n copies."""

    def __init__(self, vector: Any, *, seed: int, life_loss_terminates: bool) -> None:
        self.num_envs = int(vector.num_envs)
        self._vector: Any = vector
        self._seed: int | None = seed
        self._life_loss_terminates = life_loss_terminates
        self._autoreset = NextStepAutoreset(self.num_envs)
        self._lives = np.zeros(self.num_envs, np.int32)

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        seed, self._seed = self._seed if seed is None else seed, None
        # Seeding reloads the ROM (0.1 s an environment), so only where it is asked for.
        seeds = None if seed is None else np.array([derive(seed, i) & 0x7FFFFFFF for i in range(self.num_envs)])
        observations, info = self._vector.reset(seed=seeds)
        self._autoreset.reset()
        self._lives = info["lives"].copy()
        return _channels_first(observations)

    def step(self, actions: np.ndarray) -> EnvStep:
        observations, reward, terminated, truncated, info = self._vector.step(actions.astype(np.int64))
        frames = _channels_first(observations)
        answer = self._autoreset.answer(frames, reward.astype(np.float32), terminated, truncated)
        if self._life_loss_terminates:
            # ALE's own episodic_life restarts the whole game, so that no second life would ever be seen.
            lost = (info["lives"] < self._lives) & ~(terminated | truncated) & answer.valid
            answer = EnvStep(
                frames, answer.reward, terminated | lost, answer.truncated, answer.valid, answer.first | lost
            )
        self._lives = info["lives"].copy()
        return answer

    def get_state(self) -> None:
        """Return None: ALE's vector environment cannot be saved."""

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        raise NotImplementedError("these environments have no state to go on from: get_state gave None")

    def close(self) -> None:
        self._vector.close()
        self._vector = None  # its threads end with it


def _channels_first(observations: np.ndarray) -> np.ndarray:
    """Reshape [n, 1, H, W] or [n, 1, H, W, 3] to [n, C, H, W]."""
    if observations.ndim == 4:
        return observations
    return np.ascontiguousarray(observations[:, 0].transpose(0, 3, 1, 2))


def _check_roms(tasks: Sequence[str]) -> None:
    from ale_py import roms

    UnknownNameError.check("task of suite atari", tasks, roms.get_all_rom_ids())
