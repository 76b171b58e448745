"""MiniGrid through envpool's C++ environments: small grid worlds seen from the agent's place, 7x7 cells at a time."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from clearl.config import RunConfig
from clearl.errors import MissingExtraError, UnknownNameError
from clearl.seeding import derive
from clearl.spaces import TaskSpec, discrete_spec
from clearl.tasks.autoreset import NextStepAutoreset
from clearl.tasks.observations import TaskObservations
from clearl.tasks.suite import Scene
from clearl.types import EnvStep

VIEW = 7
OBJECTS, COLOURS, STATES, DIRECTIONS = 11, 6, 3, 4
NUM_ACTIONS = 7
OBSTACLE_ACTIONS = 3
PIXELS_PER_CELL = 16
SPEC = discrete_spec((OBJECTS + COLOURS + STATES + DIRECTIONS, VIEW, VIEW), "bool", NUM_ACTIONS)
# What MiniGrid's own environments show: a picture [x, y] of (object, colour, state), and where the agent looks.
OBSERVATIONS = TaskObservations(
    {
        "kind": "planes",
        "shape": [VIEW, VIEW],
        "items": [["image", [OBJECTS, COLOURS, STATES]], ["direction", [DIRECTIONS]]],
    }
)
# Red, green, blue, purple, yellow, grey, as MiniGrid draws them.
RGB = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [112, 39, 195], [255, 255, 0], [100, 100, 100]], np.uint8)
UNSEEN, EMPTY, WALL, DOOR = 0, 1, 2, 4

FAMILIES = {
    "Empty": ("5x5", "6x6", "8x8", "16x16", "Random-5x5", "Random-6x6"),
    "DoorKey": ("5x5", "6x6", "8x8", "16x16"),
    "Dynamic-Obstacles": ("5x5", "Random-5x5", "6x6", "Random-6x6", "8x8", "16x16"),
    "MultiRoom": ("N2-S4", "N4-S5", "N6"),
    "RedBlueDoors": ("6x6", "8x8"),
}
SINGLE = (
    "DistShift1", "DistShift2", "LavaCrossingS9N1", "LavaCrossingS9N2", "LavaCrossingS9N3", "LavaCrossingS11N5",
    "SimpleCrossingS9N1", "SimpleCrossingS9N2", "SimpleCrossingS9N3", "SimpleCrossingS11N5",
    "LavaGapS5", "LavaGapS6", "LavaGapS7", "FourRooms", "KeyCorridorS3R1", "KeyCorridorS3R2", "KeyCorridorS3R3",
    "KeyCorridorS4R3", "KeyCorridorS5R3", "KeyCorridorS6R3", "MemoryS7", "MemoryS9", "MemoryS11", "MemoryS13",
    "Unlock", "UnlockPickup", "BlockedUnlockPickup",
)  # fmt: skip


class MiniGridSuite:
    """The tasks whose goal is the same in every episode: those that state it in words would need a language model.

    The view's object, colour and state numbers and the compass direction become one plane of booleans for each value.
    """

    name = "minigrid"
    default_tasks: ClassVar[tuple[str, ...]] = (
        "MiniGrid-Empty-Random-6x6-v0",
        "MiniGrid-DoorKey-5x5-v0",
        "MiniGrid-SimpleCrossingS9N1-v0",
        "MiniGrid-LavaGapS5-v0",
    )
    known_tasks: ClassVar[tuple[str, ...]] = tuple(
        f"MiniGrid-{name}-v0"
        for name in (*(f"{family}-{size}" for family, sizes in FAMILIES.items() for size in sizes), *SINGLE)
    )
    settings: ClassVar[type | None] = None

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        if importlib.util.find_spec("envpool") is None:
            raise MissingExtraError("suite minigrid", "envpool", "install it with: pip install 'clearl[minigrid]'")
        UnknownNameError.check("task of suite minigrid", tasks, self.known_tasks)
        self.tasks = tuple(tasks)
        self.spec = self.spec_for(config)

    @staticmethod
    def spec_for(config: RunConfig) -> TaskSpec:
        """Return the spec that all tasks share; known without the package, for forecasts."""
        return SPEC.stacked(config.frame_stack or 1)

    def mask(self, task: str) -> np.ndarray:
        count = OBSTACLE_ACTIONS if "Dynamic-Obstacles" in task else NUM_ACTIONS
        return np.arange(NUM_ACTIONS) < count

    def observations(self, task: str) -> TaskObservations:
        return OBSERVATIONS

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> MiniGridEnvs:
        return MiniGridEnvs(task, num_envs=num_envs, seed=seed)

    def make_scene(self, task: str, *, seed: int) -> Scene:
        """Film the whole grid from above."""
        envs = MiniGridEnvs(task, num_envs=1, seed=seed, render_mode="rgb_array")
        return Scene(envs, lambda frame: envs.draw(0))

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        """Return the agent's view; the agent is at the bottom, in the middle.

        Objects in their colour, doors and walls as frames.
        """
        planes = frame.transpose(0, 2, 1)  # envpool's first axis is x
        objects, colours = planes[:OBJECTS].argmax(0), planes[OBJECTS : OBJECTS + COLOURS].argmax(0)
        picture = np.full((VIEW, VIEW, 3), 25, np.uint8)
        picture[objects == UNSEEN] = 0
        shown = objects > EMPTY
        picture[shown] = RGB[colours[shown]]
        large = picture.repeat(PIXELS_PER_CELL, 0).repeat(PIXELS_PER_CELL, 1)
        for y, x in np.argwhere((objects > WALL) & (objects != DOOR)):
            _frame_cell(large, y, x, (0, 0, 0), width=4)
        _frame_cell(large, VIEW - 1, VIEW // 2, (255, 255, 255), width=2)
        return large


class MiniGridEnvs:
    """n environments of one task; a new seed builds them anew, which takes a millisecond."""

    def __init__(self, task: str, *, num_envs: int, seed: int, render_mode: str | None = None) -> None:
        self.num_envs = num_envs
        self._task, self._render_mode = task, render_mode
        self._autoreset = NextStepAutoreset(num_envs)
        self._pool = self._build(seed)

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        if seed is not None:
            self._pool.close()
            self._pool = self._build(seed)
        observations, _ = self._pool.reset()
        self._autoreset.reset()
        return _planes(observations)

    def step(self, actions: np.ndarray) -> EnvStep:
        observations, reward, terminated, truncated, _ = self._pool.step(actions.astype(np.int32))
        # envpool calls a goal that is reached in the very last step a time-out.
        ended = terminated | (truncated & (reward != 0))
        return self._autoreset.answer(_planes(observations), reward.astype(np.float32), ended, truncated)

    def get_state(self) -> None:
        """Return None: envpool's environments cannot be saved."""

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        raise NotImplementedError("these environments have no state to go on from: get_state gave None")

    def close(self) -> None:
        self._pool.close()

    def draw(self, index: int) -> np.ndarray:
        """Return an RGB picture [H, W, 3] of one environment, made with the render mode `rgb_array`."""
        return self._pool.render(env_ids=index)[0]

    def _build(self, seed: int) -> Any:
        import envpool

        # A list: from one number envpool counts upwards, so that neighbouring seeds would share environments.
        seeds = [derive(seed, index) & 0x7FFFFFFF for index in range(self.num_envs)]
        return envpool.make(
            self._task, env_type="gymnasium", num_envs=self.num_envs, num_threads=1, seed=seeds,
            render_mode=self._render_mode,
        )  # fmt: skip


def _planes(observations: dict[str, np.ndarray]) -> np.ndarray:
    """Return one-hot planes [n, 24, 7, 7] of (object, colour, state) and of the direction."""
    image, direction = observations["image"], observations["direction"]
    frames = np.empty((len(image), *SPEC.observation.frame_shape), bool)
    start = 0
    for channel, count in enumerate((OBJECTS, COLOURS, STATES)):
        values = np.arange(count, dtype=np.uint8)[:, None, None]
        np.equal(image[:, None, :, :, channel], values, out=frames[:, start : start + count])
        start += count
    frames[:, start:] = (direction[:, None] == np.arange(DIRECTIONS))[:, :, None, None]
    return frames


def _frame_cell(picture: np.ndarray, y: int, x: int, colour: tuple[int, int, int], *, width: int) -> None:
    cell = picture[y * PIXELS_PER_CELL :, x * PIXELS_PER_CELL :][:PIXELS_PER_CELL, :PIXELS_PER_CELL]
    inside = cell[width:-width, width:-width].copy()
    cell[:] = colour
    cell[width:-width, width:-width] = inside
