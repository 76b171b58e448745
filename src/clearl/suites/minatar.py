"""MinAtar: five small games of 10x10 cells, and for each of them other control schemes (`breakout@1`, `breakout~1`)."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearl.config import RunConfig
from clearl.errors import ConfigError, UnknownNameError
from clearl.seeding import derive, generator
from clearl.spaces import TaskSpec, discrete_spec
from clearl.suites.minatar_games import find_game, package_path
from clearl.suites.settings import StickyActions
from clearl.tasks.observations import TaskObservations
from clearl.types import EnvStep

NUM_ACTIONS = 6
SIZE = 10
LEFT, RIGHT = 1, 3
CHANNELS = {"breakout": 4, "space_invaders": 6, "asterix": 4, "seaquest": 10, "freeway": 7}
SPEC = discrete_spec(frame_shape=(SIZE, SIZE, SIZE), frame_dtype="bool", num_actions=NUM_ACTIONS)
PIXELS_PER_CELL = 16
PALETTE = np.frombuffer(bytes.fromhex("0072b2e69f00cc79a7009e7356b4e9f0e442d55e00ffffff999999a06e3c"), np.uint8)
PALETTE = PALETTE.reshape(SIZE, 3)  # one colour a channel, told apart by the colour-blind
MARK_COLOUR = (40, 40, 60)
STICKY_DEFAULT = 0.1  # the package's own


@functools.cache
def control_scheme(k: int) -> tuple[int, ...]:
    """Return the game's action for each of the agent's actions in scheme `k`; 0 leaves the controls alone.

    From 3 on, the table is the first permutation drawn from `generator(k, "minatar-controls")` whose left or right lies
    elsewhere than in every smaller scheme, so that no two schemes steer alike.
    """
    fixed = {0: (0, 1, 2, 3, 4, 5), 1: (0, 2, 1, 4, 3, 5), 2: (3, 0, 2, 5, 4, 1)}
    if k in fixed:
        return fixed[k]
    taken = {(table.index(LEFT), table.index(RIGHT)) for table in map(control_scheme, range(k))}
    rng = generator(k, "minatar-controls")
    while True:
        table = tuple(rng.permutation(NUM_ACTIONS).tolist())
        if (table.index(LEFT), table.index(RIGHT)) not in taken:
            return table


@dataclass(frozen=True)
class MinAtarTask:
    """A game and its control scheme, which shows as one channel of ones that the game leaves empty, unless hidden."""

    game: str
    scheme: int = 0
    hidden: bool = False

    @property
    def mark(self) -> tuple[int, int] | None:
        """Channel and number of rows that are set to 1, or None without a scheme that shows.

        Seaquest uses all ten channels, but the two gauges only their last row: there the other nine rows are the mark.
        """
        if not self.scheme or self.hidden:
            return None
        if self.game == "seaquest":
            return 6 + self.scheme, SIZE - 1
        return CHANNELS[self.game] + self.scheme - 1, SIZE

    @property
    def schemes(self) -> int:
        """The number of schemes that this game's frames can show."""
        return 2 if self.game == "seaquest" else SIZE - CHANNELS[self.game]


def parse_task(name: str) -> MinAtarTask:
    """Parse `breakout`, `breakout@2`, or `breakout~2`: the same controls as `breakout@2` without a visible sign."""
    at = "~" if "~" in name else "@"
    game, at, scheme = name.partition(at)
    if game not in CHANNELS:
        raise UnknownNameError("task of suite minatar", name, MinAtarSuite.known_tasks)
    if not at:
        return MinAtarTask(game)
    most = MinAtarTask(game).schemes
    if not scheme.isdecimal() or not 1 <= int(scheme) <= most:
        raise ConfigError(f"task {name!r}: the control scheme after '{at}' must be a number from 1 to {most} in {game}")
    return MinAtarTask(game, int(scheme), hidden=at == "~")


class MinAtarSuite:
    """All five games padded to ten channels and six actions."""

    name = "minatar"
    default_tasks: ClassVar[tuple[str, ...]] = ("breakout", "space_invaders")
    known_tasks: ClassVar[tuple[str, ...]] = tuple(f"{game}{at}" for game in CHANNELS for at in ("", "@1", "@2"))
    settings: ClassVar[type | None] = StickyActions

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        self.tasks = tuple(tasks)
        self.spec = self.spec_for(config)
        self._parsed = {task: parse_task(task) for task in self.tasks}
        sticky = config.sticky_action_probability
        self._sticky = STICKY_DEFAULT if sticky is None else sticky
        package_path()

    @staticmethod
    def spec_for(config: RunConfig) -> TaskSpec:
        """Return the spec that all tasks share; known without the package, for forecasts."""
        return SPEC.stacked(config.frame_stack or 1)

    def mask(self, task: str) -> np.ndarray:
        return np.ones(NUM_ACTIONS, bool)

    def observations(self, task: str) -> TaskObservations:
        """Describe observations as MinAtar's games give them, channels last, with the mark of a control scheme."""
        parsed = self._parsed[task]
        channels = SIZE if parsed.scheme else CHANNELS[parsed.game]
        return TaskObservations({"kind": "box", "shape": [SIZE, SIZE, channels], "dtype": "bool"})

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> MinAtarEnvs:
        return MinAtarEnvs(self._parsed[task], num_envs=num_envs, seed=seed, sticky=self._sticky)

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        """Draw cells in the colour of their highest channel, the mark of a control scheme as a dim background."""
        picture = np.zeros((SIZE, SIZE, 3), np.uint8)
        cells = frame.copy()
        mark = self._parsed[task].mark
        if mark is not None:
            channel, rows = mark
            picture[:] = MARK_COLOUR
            cells[channel, :rows] = False
        for channel in range(SIZE):
            picture[cells[channel]] = PALETTE[channel]
        return picture.repeat(PIXELS_PER_CELL, 0).repeat(PIXELS_PER_CELL, 1)


class MinAtarEnvs:
    """n games stepped in one loop, each with its own random numbers."""

    def __init__(self, task: MinAtarTask, *, num_envs: int, seed: int, sticky: float = 0.0) -> None:
        self.num_envs = num_envs
        self._task = task
        self._sticky = sticky
        self._controls = control_scheme(task.scheme)
        # Freeway ends only by its clock, which the frame does not show: a time limit, not a death.
        self._ends_by_clock = task.game == "freeway"
        self._game = find_game(task.game)
        self._games: list[Any] = [self._game.make() for _ in range(num_envs)]
        self._seed(seed)
        self._last_actions = [0] * num_envs
        self._waiting = [False] * num_envs  # truncated: the next action is ignored

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        if seed is not None:
            self._seed(seed)
        for index in range(self.num_envs):
            self._restart(index)
        return self._frames()

    def step(self, actions: np.ndarray) -> EnvStep:
        n, controls, sticky = self.num_envs, self._controls, self._sticky
        reward = np.zeros(n, np.float32)
        terminated, truncated, first = np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, bool)
        valid = np.ones(n, bool)
        for index, (game, action) in enumerate(zip(self._games, actions.tolist(), strict=True)):
            if self._waiting[index]:
                self._restart(index)
                valid[index], first[index] = False, True
            else:
                move = controls[action]
                if sticky and game.random.rand() < sticky:
                    move = self._last_actions[index]
                self._last_actions[index] = move
                gained, over = game.act(move)
                if gained:
                    reward[index] = gained
                if over and self._ends_by_clock:
                    truncated[index] = self._waiting[index] = True
                elif over:
                    terminated[index] = first[index] = True
                    self._restart(index)
        return EnvStep(self._frames(), reward, terminated, truncated, valid, first)

    @staticmethod
    def combined(seats: Sequence[tuple[MinAtarEnvs, int]]) -> MinAtarEnvs:
        """Combine games of other vectors, each in its present state; see `clearl.tasks.vectors`."""
        made = copy.copy(seats[0][0])
        made.num_envs = len(seats)
        for name in ("_games", "_last_actions", "_waiting"):
            setattr(made, name, [getattr(envs, name)[index] for envs, index in seats])
        return made

    def get_state(self) -> dict[str, Any]:
        games = [self._game.variables(game) for game in self._games]
        arrays = [name for name, value in games[0].items() if isinstance(value, np.ndarray)]
        skipped = {*arrays, "random", "channels", "action_map"}
        numbers = [game.random.get_state(legacy=False) for game in self._games]
        return {
            "game": self._task.game,
            "waiting": list(self._waiting),
            "last_actions": list(self._last_actions),
            "random_key": np.stack([number["state"]["key"] for number in numbers]),
            "random_position": [int(number["state"]["pos"]) for number in numbers],
            "values": [{k: _plain(v) for k, v in game.items() if k not in skipped} for game in games],
            **{f"array_{name}": np.stack([game[name] for game in games]) for name in arrays},
        }

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        if state["game"] != self._task.game or len(state["values"]) != self.num_envs:
            raise ConfigError(f"the state of {len(state['values'])} games of {state['game']} does not fit these")
        self._waiting, self._last_actions = list(state["waiting"]), list(state["last_actions"])
        for index, game in enumerate(self._games):
            arrays = {name.removeprefix("array_"): a[index].copy() for name, a in state.items() if name[:6] == "array_"}
            self._game.restore(game, {**{k: _plain(v) for k, v in state["values"][index].items()}, **arrays})
            key, position = state["random_key"][index], int(state["random_position"][index])
            game.random.set_state(("MT19937", np.asarray(key, np.uint32), position))
        return self._frames()

    def close(self) -> None:
        self._games = []

    def _seed(self, seed: int) -> None:
        for index, game in enumerate(self._games):
            game.random = np.random.RandomState(derive(seed, index) & 0xFFFFFFFF)

    def _restart(self, index: int) -> None:
        self._games[index].reset()
        self._waiting[index], self._last_actions[index] = False, 0

    def _frames(self) -> np.ndarray:
        frames = np.zeros((self.num_envs, *SPEC.observation.frame_shape), bool)
        frames[:, : CHANNELS[self._task.game]] = self._game.look(self._games)
        mark = self._task.mark
        if mark is not None:
            channel, rows = mark
            frames[:, channel, :rows] = True
        return frames


def _plain(value: Any) -> Any:
    """Return a deep copy in JSON's types: the games mix NumPy's integers with Python's."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
