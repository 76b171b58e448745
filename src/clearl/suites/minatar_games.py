"""The source of MinAtar's games: the package itself, or an installed distribution that has a faster one."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from clearl.errors import MissingExtraError
from clearl.registry import installed

ENTRY_POINT_GROUP = "clearl.minatar_games"


class Game(Protocol):
    """One kind of game. An instance has `reset()`, `act(action) -> (reward, over)` and `random`, as MinAtar's have."""

    def make(self) -> Any:
        """Make a new game."""
        ...

    def look(self, games: Sequence[Any]) -> np.ndarray:
        """Return the observations of games, [n, channels, 10, 10] bool."""
        ...

    def variables(self, game: Any) -> dict[str, Any]:
        """Return its variables under MinAtar's names and types: a checkpoint fits every implementation."""
        ...

    def restore(self, game: Any, variables: dict[str, Any]) -> None:
        """Set `variables` again."""
        ...


class PackageGame:
    """A game of the MinAtar package."""

    def __init__(self, name: str) -> None:
        self._module = game_module(name)

    def make(self) -> Any:
        return self._module.Env(ramping=True)

    def look(self, games: Sequence[Any]) -> np.ndarray:
        return np.stack([game.state() for game in games]).transpose(0, 3, 1, 2)

    def variables(self, game: Any) -> dict[str, Any]:
        return vars(game)

    def restore(self, game: Any, variables: dict[str, Any]) -> None:
        vars(game).update(variables)


@functools.cache
def find_game(name: str) -> Game:
    """Return the installed faster game of that name, else the package's own. Both play alike, bit for bit."""
    for entry in installed(ENTRY_POINT_GROUP).select(name=name):
        return entry.load()
    return PackageGame(name)


def package_path() -> Path:
    """Return the directory where the MinAtar package is installed."""
    spec = importlib.util.find_spec("minatar")
    if spec is None or spec.origin is None:
        raise MissingExtraError("suite minatar", "minatar", "install it with: pip install MinAtar")
    return Path(spec.origin).parent


def game_module(game: str) -> ModuleType:
    """Import the game's own file, without the package, which imports matplotlib and seaborn (1.5 s a worker)."""
    name = f"clearl.suites._minatar_{game}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, package_path() / "environments" / f"{game}.py")
        assert spec is not None and spec.loader is not None, "a path that ends in .py always has a loader"
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]
