"""Environments that draw themselves: what a picture is of, and the reasons why there is none."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from clearl.config import RunConfig
from clearl.errors import EnvironmentFaultError, NoPictureError
from clearl.suites import make_suite
from clearl.tasks import filming, makers
from clearl.tasks.suite import DrawsStates, Scene


class Drawn(gymnasium.Env[np.ndarray, Any]):
    """The picture has the colour (10 x episode, time, 7); an episode ends after `length` steps, or is cut there."""

    observation_space = Box(0.0, 9.0, (1,), np.float32)
    action_space = Discrete(2)
    metadata = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, length: int = 3, cut: bool = False, render_mode: str | None = None) -> None:
        self.length, self.cut, self.render_mode = length, cut, render_mode
        self.episode = self.time = 0
        self.canvas = np.zeros((4, 6, 3), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self.episode, self.time = self.episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == self.length
        return np.full(1, self.time, np.float32), 1.0, over and not self.cut, over and self.cut, {}

    def render(self) -> Any:
        self.canvas[:] = (10 * self.episode, self.time, 7)
        return self.canvas


class Mute(Drawn):
    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 - Gymnasium's own form


class Grey(Drawn):
    def render(self) -> Any:
        return np.zeros((4, 6), np.float32)


class NoDriver(Drawn):
    def render(self) -> Any:
        warnings.warn("libGL is missing", UserWarning, stacklevel=1)  # an error in these tests
        raise RuntimeError("no OpenGL driver\nand a second line")


class Unasked(Drawn):
    """Lists the mode, and has no keyword for it."""

    def __init__(self) -> None:
        super().__init__()


KINDS: tuple[Any, ...] = (Drawn, Mute, Grey, NoDriver, Unasked)
for kind in KINDS:
    gymnasium.register(f"{kind.__name__}-v0", entry_point=kind)


def scene_of(task: str, **settings: Any) -> Scene:
    suite = make_suite("gym", (task,), RunConfig(suite="gym", **settings))
    assert isinstance(suite, DrawsStates)
    return suite.make_scene(task, seed=0)


def colours(scene: Scene, steps: int) -> list[list[int]]:
    """The colour after a reset and after each step."""
    frames = scene.envs.reset()
    seen = [scene.picture(frames[0])]
    for _ in range(steps):
        seen.append(scene.picture(scene.envs.step(np.zeros(1, np.int64)).frames[0]))
    assert {picture.shape for picture in seen} == {(4, 6, 3)}
    return [picture[0, 0].tolist() for picture in seen]


def test_the_end_of_an_episode_is_shown_before_the_next_begins() -> None:
    # One episode was begun to see whether it can be drawn.
    assert colours(scene_of("Drawn-v0?length=2"), 4) == [[20, 0, 7], [20, 1, 7], [20, 2, 7], [30, 1, 7], [30, 2, 7]]


def test_a_step_that_only_resets_shows_the_start() -> None:
    task = "Drawn-v0?length=2&cut=true"
    assert colours(scene_of(task), 4) == [[20, 0, 7], [20, 1, 7], [20, 2, 7], [30, 0, 7], [30, 1, 7]]


def test_a_reset_in_between_leaves_no_old_picture() -> None:
    scene = scene_of("Drawn-v0?length=2")
    colours(scene, 2)
    assert colours(scene, 1) == [[40, 0, 7], [40, 1, 7]]


def test_repeated_actions_give_one_picture_a_decision() -> None:
    assert colours(scene_of("Drawn-v0?length=9", action_repeat=3), 2) == [[20, 0, 7], [20, 3, 7], [20, 6, 7]]


def test_wrappers_stay_around_it() -> None:
    scene = scene_of("Drawn-v0?length=9", wrappers=("TimeLimit?max_episode_steps=2",))
    scene.envs.reset()
    assert [bool(scene.envs.step(np.zeros(1, np.int64)).truncated[0]) for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("Mute-v0", "does not offer the render mode rgb_array"),
        ("Grey-v0", "render gave float32 of shape (4, 6), expected uint8"),
        ("NoDriver-v0", "cannot draw itself here: RuntimeError: no OpenGL driver"),
        ("Unasked-v0", "cannot be made to draw itself"),
    ],
)
def test_what_cannot_be_drawn_gives_its_reason_in_one_line(task: str, reason: str) -> None:
    with pytest.raises(NoPictureError) as caught:
        scene_of(task)
    assert reason in str(caught.value) and task in str(caught.value) and "\n" not in str(caught.value)


def plain() -> Drawn:
    return Drawn()


def willing(render_mode: str | None = None) -> Drawn:
    return Drawn(render_mode=render_mode)


@pytest.mark.parametrize("made", [willing, lambda: Drawn(render_mode="rgb_array")])
def test_a_function_of_the_users_is_filmed_if_it_takes_the_mode_or_has_it(
    made: Callable[..., Drawn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(makers._MAKERS, "mine", made)
    assert colours(scene_of("mine"), 1) == [[20, 0, 7], [20, 1, 7]]


def test_a_function_of_the_users_that_does_not_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(makers._MAKERS, "mine", plain)
    with pytest.raises(NoPictureError, match="its render_mode is None"):
        scene_of("mine")


def test_an_environment_that_fails_is_built_anew_with_its_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of("Drawn-v0?length=99")
    colours(scene, 40)
    with monkeypatch.context() as patch:
        patch.setattr(Drawn, "step", lambda self, action: 1 / 0)
        frames = scene.envs.step(np.zeros(1, np.int64)).frames
    assert scene.picture(frames[0])[0, 0].tolist() == [20, 0, 7]
    with pytest.raises(EnvironmentFaultError), monkeypatch.context() as patch:
        patch.setattr(Drawn, "render", lambda self: 1 / 0)
        scene.envs.step(np.zeros(1, np.int64))


@pytest.mark.parametrize(("library", "chosen"), [("libEGL.so.1", "egl"), (None, "osmesa")])
def test_without_a_display_mujoco_draws_without_one(
    library: str | None, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    monkeypatch.setattr(filming, "find_library", lambda name: library)
    monkeypatch.setattr(filming.sys, "platform", "linux")
    scene_of("Drawn-v0")
    assert os.environ["MUJOCO_GL"] == chosen
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    scene_of("Drawn-v0")
    assert os.environ["MUJOCO_GL"] == "glfw"  # the user's own choice
