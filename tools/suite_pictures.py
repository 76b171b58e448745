"""Pictures for docs/suites, out of the environments themselves: `python tools/suite_pictures.py [SUITE...]`.

Each task is played at random for a few steps; what the agent then sees is drawn as `clearl video` draws it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from clearl.config import RunConfig
from clearl.suites import make_suite

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
    "mujoco": ("half_cheetah", "ant", "walker2d", "hopper", "swimmer", "reacher"),
}  # fmt: skip


def draw(name: str) -> None:
    """Write a picture of each task of a suite."""
    for task in TASKS[name]:
        picture = PAINTERS[name](task) if name in PAINTERS else _seen(name, task)
        scale = WIDTH / picture.shape[1]
        size = (WIDTH, round(picture.shape[0] * scale))
        way = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
        path = PICTURES / f"{name}-{task.replace('@', '-scheme-')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).resize(size, way).quantize(64).save(path, optimize=True)
        print(path.name, path.stat().st_size)


def _seen(name: str, task: str) -> np.ndarray:
    suite = make_suite(name, (task,), RunConfig())
    envs = suite.make(task, num_envs=1, seed=3)
    frames, rng = envs.reset(), np.random.default_rng(3)
    allowed = np.flatnonzero(suite.mask(task))
    for _ in range(STEPS[name]):
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


def _outlined(task: str) -> np.ndarray:
    """The capsules and balls of a MuJoCo model, without OpenGL: from the side, or from above where it lies flat."""
    from clearl.suites.mujoco import make_robot

    env = make_robot(task)
    env.reset(seed=3)
    model, data = env.unwrapped.model, env.unwrapped.data
    across, up = (0, 1) if task in FLAT else (0, 2)
    ends, widths = [], []
    for geom in range(model.ngeom):
        if model.geom_type[geom] not in (BALL, CAPSULE):
            continue
        radius, half = model.geom_size[geom][:2]
        axis = data.geom_xmat[geom].reshape(3, 3)[:, 2] * (half if model.geom_type[geom] == CAPSULE else 0.0)
        ends.append([(data.geom_xpos[geom] + sign * axis)[[across, up]] for sign in (-1, 1)])
        widths.append(2 * radius)
    env.close()
    points = np.array(ends)
    middle = (points.min((0, 1)) + points.max((0, 1))) / 2
    scale = 4 * WIDTH * 0.8 / max(np.ptp(points, axis=(0, 1)).max() + max(widths), 1e-6)
    image = Image.new("RGB", (4 * WIDTH, 4 * WIDTH), "white")
    pen = ImageDraw.Draw(image)
    for (first, last), width in zip(points, widths, strict=True):
        places = [tuple(2 * WIDTH + (point - middle) * (scale, -scale)) for point in (first, last)]
        pen.line(places, fill="#0072b2", width=max(1, round(width * scale)))
        for x, y in places:
            r = width * scale / 2
            pen.ellipse((x - r, y - r, x + r, y + r), fill="#0072b2", outline="#56b4e9", width=4)
    return np.asarray(image)


BALL, CAPSULE = 2, 3  # mujoco.mjtGeom
FLAT = ("ant", "swimmer", "reacher")
PAINTERS = {"gym": _rendered, "mujoco": _outlined}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or TASKS:
        draw(chosen)
