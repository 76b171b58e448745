"""Pictures for docs/suites, out of the environments themselves: `python tools/suite_pictures.py [SUITE...]`.

Each task is played at random for a few steps and drawn as `clearl video` draws it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from clearl.config import RunConfig
from clearl.play import open_scene
from clearl.suites import make_suite
from clearl.testing.suites import RandomPlayer

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "suites" / "pictures"
WIDTH = 240
STEPS = {"minatar": 45, "minigrid": 3, "atari": 140, "vizdoom": 8, "gym": 12, "mujoco": 6, "metaworld": 30}
TASKS = {
    "minatar": ("breakout", "breakout@1", "space_invaders", "asterix", "seaquest", "freeway"),
    "minigrid": (
        "MiniGrid-Empty-Random-6x6-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-SimpleCrossingS9N1-v0",
        "MiniGrid-LavaGapS5-v0", "MiniGrid-FourRooms-v0", "MiniGrid-KeyCorridorS3R1-v0",
    ),
    "atari": ("space_invaders", "krull", "beam_rider", "hero", "star_gunner", "ms_pacman"),
    "vizdoom": ("health_gathering", "my_way_home", "defend_the_center", "deadly_corridor", "basic", "take_cover"),
    "gym": ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"),
    "mujoco": ("half_cheetah", "ant", "walker2d", "hopper", "swimmer", "reacher"),
    "metaworld": ("hammer", "push-wall", "faucet-close", "stick-pull", "shelf-place", "window-close"),
}  # fmt: skip


def draw(name: str) -> None:
    """Write a picture of each task of a suite."""
    for task in TASKS[name]:
        picture = _picture(name, task)
        scale = WIDTH / picture.shape[1]
        size = (WIDTH, round(picture.shape[0] * scale))
        way = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
        path = PICTURES / f"{name}-{task.replace('@', '-scheme-')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).resize(size, way).quantize(64).save(path, optimize=True)
        print(path.name, path.stat().st_size)


def _picture(name: str, task: str) -> np.ndarray:
    suite = make_suite(name, (task,), RunConfig())
    scene = open_scene(suite, task, 3, tell=print)
    frames = scene.envs.reset()
    picture = scene.picture(frames[0])
    for step in RandomPlayer(suite, task, seed=3).steps(scene.envs, frames, STEPS[name]):
        picture = scene.picture(step.frames[0])
    scene.envs.close()
    return picture


if __name__ == "__main__":
    for chosen in sys.argv[1:] or TASKS:
        draw(chosen)
