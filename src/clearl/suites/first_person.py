"""Picture and action repeat of the 3-D suites: IMPALA's 72 x 96 pixels in colour, an action for 4 frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from clearl.config import RunConfig
from clearl.spaces import TaskSpec, discrete_spec
from clearl.tasks.drawing import draw_frame
from clearl.tasks.loop import LoopEnvs
from clearl.tasks.observations import TaskObservations
from clearl.tasks.writing import ObservationWriter

HEIGHT, WIDTH = 72, 96
PICTURE = TaskObservations({"kind": "box", "shape": [HEIGHT, WIDTH, 3], "dtype": "uint8"})
_FRAME_SHAPE = (3, HEIGHT, WIDTH)
_PIXEL_SCALE = 4


def first_person_spec(num_actions: int, config: RunConfig) -> TaskSpec:
    """Return the spec of a suite with this picture."""
    return discrete_spec(
        frame_shape=_FRAME_SHAPE,
        frame_dtype="uint8",
        num_actions=num_actions,
        stack=config.frame_stack or 1,
        frames_per_step=config.action_repeat or 4,
    )


def first_person_envs(
    task: str, num_envs: int, *, seed: int, spec: TaskSpec, make_env: Callable[[], Any]
) -> LoopEnvs:  # fmt: skip
    """Make environments that show [72, 96, 3], one after the other, and step them in turn."""
    return LoopEnvs(
        task,
        [make_env() for _ in range(num_envs)],
        seed=seed,
        frame_shape=_FRAME_SHAPE,
        frame_dtype="uint8",
        writer=ObservationWriter(PICTURE, spec.observation),
        rebuild=make_env,
    )


def draw_first_person(frame: np.ndarray) -> np.ndarray:
    """Return a frame as an RGB picture, every pixel four times as wide and high."""
    return draw_frame(frame).repeat(_PIXEL_SCALE, 0).repeat(_PIXEL_SCALE, 1)
