"""ViZDoom: 3-D first-person scenarios that run anywhere, with DMLab's picture size, repeats and kind of actions."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import tempfile
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
from clearl.suites.settings import ActionRepeat
from clearl.tasks.loop import LoopEnvs
from clearl.tasks.observations import TaskObservations

FOLDER_PREFIX = "clearl-vizdoom-"
ACTIONS = (
    ("MOVE_FORWARD",),
    ("MOVE_BACKWARD",),
    ("MOVE_LEFT",),
    ("MOVE_RIGHT",),
    ("TURN_LEFT",),
    ("TURN_RIGHT",),
    ("MOVE_FORWARD", "TURN_LEFT"),
    ("MOVE_FORWARD", "TURN_RIGHT"),
    ("ATTACK",),
)
_TURN, _STRAFE = ("TURN_LEFT", "TURN_RIGHT"), ("MOVE_LEFT", "MOVE_RIGHT")
BUTTONS = {
    "health_gathering": (*_TURN, "MOVE_FORWARD"),
    "my_way_home": (*_TURN, *_STRAFE, "MOVE_FORWARD"),
    "defend_the_center": (*_TURN, "ATTACK"),
    "deadly_corridor": (*_TURN, *_STRAFE, "MOVE_FORWARD", "MOVE_BACKWARD", "ATTACK"),
    "health_gathering_supreme": (*_TURN, "MOVE_FORWARD"),
    "basic": (*_STRAFE, "ATTACK"),
    "defend_the_line": (*_TURN, "ATTACK"),
    "predict_position": (*_TURN, "ATTACK"),
    "take_cover": _STRAFE,
}
"""The scenarios, and which buttons each of them has: actions that need another one are masked."""


class VizDoomSuite:
    """Bundled scenarios with one picture and one set of nine actions."""

    name = "vizdoom"
    default_tasks: ClassVar[tuple[str, ...]] = tuple(BUTTONS)[:4]
    known_tasks: ClassVar[tuple[str, ...]] = tuple(BUTTONS)
    settings: ClassVar[type | None] = ActionRepeat

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        if importlib.util.find_spec("vizdoom") is None:
            raise MissingExtraError("suite vizdoom", "vizdoom", "install it with: pip install 'clearl[vizdoom]'")
        UnknownNameError.check("task of suite vizdoom", tasks, BUTTONS)
        self.tasks = tuple(tasks)
        self.spec = self.spec_for(config)

    @staticmethod
    def spec_for(config: RunConfig) -> TaskSpec:
        """Return the spec that all tasks share; known without the package, for forecasts."""
        return first_person_spec(len(ACTIONS), config)

    def mask(self, task: str) -> np.ndarray:
        return np.array([set(pressed) <= set(BUTTONS[task]) for pressed in ACTIONS])

    def observations(self, task: str) -> TaskObservations:
        return PICTURE

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> LoopEnvs:
        end_orphans()
        # They start one after the other: while threads did this at the same time, ViZDoom crashed now and then.
        return first_person_envs(task, num_envs, seed=seed, spec=self.spec, make_env=partial(self._one, task))

    def _one(self, task: str) -> DoomGame:
        game = DoomGame(task, repeat=self.spec.frames_per_step)
        game.start()
        return game

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        return draw_first_person(frame)


class DoomGame:
    """One scenario in a process of its own, with Gymnasium's methods."""

    def __init__(self, scenario: str, *, repeat: int) -> None:
        import vizdoom

        self._repeat = repeat
        self._rng = generator(0, "vizdoom")
        self._folder = tempfile.TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
        self._last = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        game = self._game = vizdoom.DoomGame()
        game.load_config(str(Path(vizdoom.scenarios_path) / f"{scenario}.cfg"))
        game.set_available_buttons([getattr(vizdoom.Button, button) for button in BUTTONS[scenario]])
        game.set_doom_config_path(str(Path(self._folder.name) / "vizdoom.ini"))
        game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_mode(vizdoom.Mode.PLAYER)
        self._presses = [[button in pressed for button in BUTTONS[scenario]] for pressed in ACTIONS]
        # The time limit is kept here, because a game that has reached its own shows no last frame to bootstrap from.
        self._limit_tics = game.get_episode_timeout() or None
        game.set_episode_timeout(0)
        self._tics = 0

    def start(self) -> None:
        """Start the game's process; remove the empty folder that it creates in the working directory."""
        litter = Path("_vizdoom")
        had_it = litter.exists()
        self._game.init()
        if not had_it:
            try:
                litter.rmdir()
            except OSError:
                return  # another game was quicker, or keeps something there

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self._rng = generator(seed, "vizdoom")
        self._game.set_seed(int(self._rng.integers(2**31)))
        self._game.new_episode()
        self._tics = 0
        return self._see(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = self._game.make_action(self._presses[action], self._repeat)
        self._tics += self._repeat
        if self._game.is_episode_finished():
            return self._last, reward, True, False, {}
        timeout = self._limit_tics is not None and self._tics >= self._limit_tics
        return self._see(), reward, False, timeout, {}

    def close(self) -> None:
        self._game.close()
        self._folder.cleanup()

    def _see(self) -> np.ndarray:
        self._last = shrink(self._game.get_state().screen_buffer)
        return self._last


def end_orphans() -> None:
    """End games whose worker was killed: they would wait for it for ever. Their command line names it by its id."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            folder = Path(words[words.index("-config") + 1]).parent
            worker = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
            if folder.name.startswith(FOLDER_PREFIX) and not Path("/proc", worker).exists():
                os.kill(int(process.name), signal.SIGKILL)
                shutil.rmtree(folder, ignore_errors=True)
                for memory in Path("/dev/shm").glob(f"ViZDoom*{words[words.index('+viz_instance_id') + 1]}"):
                    memory.unlink()
        except (OSError, ValueError, IndexError):
            continue  # no game, gone meanwhile, or another user's


# Three pixels out of five, by the area that each covers.
_AREA = np.array([[3, 2, 0, 0, 0], [0, 1, 3, 1, 0], [0, 0, 0, 2, 3]], np.float32) / 5


def shrink(picture: np.ndarray) -> np.ndarray:
    """Shrink a picture [120, 160, 3] to [72, 96, 3], every pixel the mean of the area that it covers."""
    rows = np.matmul(_AREA, picture.reshape(HEIGHT // 3, 5, -1).astype(np.float32))
    columns = np.matmul(_AREA, rows.reshape(HEIGHT, WIDTH // 3, 5, 3))
    return (columns.reshape(HEIGHT, WIDTH, 3) + 0.5).astype(np.uint8)
