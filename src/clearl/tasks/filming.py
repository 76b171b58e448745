"""Film environments that draw themselves with Gymnasium's `render`, step by step."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from ctypes.util import find_library
from typing import Any, Protocol

import numpy as np

from clearl.errors import ClearlError, NoPictureError
from clearl.tasks.calls import close_env
from clearl.tasks.loop import SingleEnv

RENDER_MODE = "rgb_array"


class DrawnEnv(SingleEnv, Protocol):
    """An environment with Gymnasium's `render`."""

    def render(self) -> Any: ...


def offered_modes(env: Any) -> tuple[str, ...]:
    """Return the render modes that an environment lists."""
    return tuple((getattr(env, "metadata", None) or {}).get("render_modes") or ())


class Camera:
    """Makes environments of one task that are drawn after every reset and step, and keeps the pictures."""

    def __init__(self, task: str, make: Callable[[], DrawnEnv], offered: Sequence[str]) -> None:
        """Take `make`, which builds an environment for `RENDER_MODE`, and `offered`, the modes that it lists."""
        if RENDER_MODE not in offered:
            raise NoPictureError(f"{task} does not offer the render mode {RENDER_MODE}")
        self._task, self._make = task, make
        self._pictures: list[np.ndarray] = []

    def make_env(self) -> SingleEnv:
        """Return a new environment; `NoPictureError` if it cannot draw itself."""
        _draw_without_display()
        try:
            env = self._make()
        except ClearlError as error:
            raise NoPictureError(f"{self._task} cannot be made to draw itself: {_first_line(error)}") from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what keeps it from drawing is said once, below
                env.reset(seed=0)
                _draw(env)
        except (Exception, SystemExit) as error:  # whatever an environment or OpenGL raises
            close_env(self._task, env)
            problem = f"{type(error).__name__}: {_first_line(error)}"
            raise NoPictureError(f"{self._task} cannot draw itself here: {problem}") from error
        return _Filmed(env, self._pictures)

    def last_picture(self, frame: np.ndarray) -> np.ndarray:
        """Return the picture of the last reset or step; `frame` is not used."""
        first = self._pictures[0]  # a second one shows the episode that begins in the same step
        self._pictures.clear()
        return first


class _Filmed:
    """Adds a picture to `pictures` after every reset and step."""

    def __init__(self, env: DrawnEnv, pictures: list[np.ndarray]) -> None:
        self._env, self._pictures = env, pictures

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        answer = self._env.reset(seed=seed)
        self._pictures.append(_draw(self._env))
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self._env.step(action)
        self._pictures.append(_draw(self._env))
        return answer

    def close(self) -> None:
        self._env.close()


def _draw(env: DrawnEnv) -> np.ndarray:
    picture = np.asarray(env.render())
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
        raise TypeError(f"render gave {picture.dtype} of shape {picture.shape}, expected uint8 [height, width, 3]")
    return picture.copy()  # some environments draw into the same array each time


def _draw_without_display() -> None:
    """If there is no display, choose drawing back ends that need none: the defaults of MuJoCo and SDL need one."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("MUJOCO_GL", "egl" if find_library("EGL") else "osmesa")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
