"""Pictures for docs/suites, out of the environments themselves: `python tools/suite_pictures.py [SUITE...]`.

Each task is played at random for a few steps; what the agent then sees is drawn as `clearl video` draws it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from clearl.config import RunConfig
from clearl.suites import make_suite
from clearl.tasks.suite import Suite

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "suites" / "pictures"
WIDTH = 240
STEPS = {"minatar": 25, "minigrid": 3, "atari": 140, "vizdoom": 8, "gym": 12}
TASKS = {
    "minatar": ("breakout", "breakout@1", "space_invaders", "asterix", "seaquest", "freeway"),
    "minigrid": (
        "MiniGrid-Empty-Random-6x6-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-SimpleCrossingS9N1-v0",
        "MiniGrid-LavaGapS5-v0", "MiniGrid-FourRooms-v0", "MiniGrid-KeyCorridorS3R1-v0",
    ),
    "atari": ("space_invaders", "krull", "beam_rider", "hero", "star_gunner", "ms_pacman"),
    "vizdoom": ("health_gathering", "my_way_home", "defend_the_center", "deadly_corridor", "basic", "take_cover"),
    "gym": ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"),
}  # fmt: skip


def draw(name: str) -> None:
    """Write a picture of each task of a suite."""
    for task in TASKS[name]:
        picture = _rendered(task) if name == "gym" else _seen(make_suite(name, (task,), RunConfig()), task, STEPS[name])
        scale = WIDTH / picture.shape[1]
        size = (WIDTH, round(picture.shape[0] * scale))
        way = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
        path = PICTURES / f"{name}-{task.replace('@', '-scheme-')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).resize(size, way).quantize(64).save(path, optimize=True)
        print(path.name, path.stat().st_size)


def _seen(suite: Suite, task: str, steps: int) -> np.ndarray:
    envs = suite.make(task, num_envs=1, seed=3)
    frames, rng = envs.reset(), np.random.default_rng(3)
    allowed = np.flatnonzero(suite.mask(task))
    for _ in range(steps):
        frames = envs.step(rng.choice(allowed, size=1)).frames
    picture = suite.render(task, frames[0])
    envs.close()
    return picture


def _rendered(task: str) -> np.ndarray:
    """Gymnasium's own picture: what the agent sees there is a few numbers."""
    import gymnasium

    env = gymnasium.make(task, render_mode="rgb_array")
    env.reset(seed=3)
    env.action_space.seed(3)
    for _ in range(STEPS["gym"]):
        env.step(env.action_space.sample())
    picture = np.asarray(env.render())
    env.close()
    return picture


if __name__ == "__main__":
    for chosen in sys.argv[1:] or TASKS:
        draw(chosen)
