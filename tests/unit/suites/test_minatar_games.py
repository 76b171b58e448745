"""Where a game comes from makes no difference to what is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoints
from typing import Any

import numpy as np
import pytest

from clearl.suites import minatar_games
from clearl.suites.minatar import MinAtarEnvs, MinAtarTask
from clearl.suites.minatar_games import ENTRY_POINT_GROUP, PackageGame, find_game

TASK = MinAtarTask("space_invaders", 1)


@pytest.fixture
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Call it, and no other distribution is installed any more."""

    def hide() -> None:
        monkeypatch.setattr(minatar_games, "installed", lambda _: EntryPoints())
        find_game.cache_clear()

    yield hide
    find_game.cache_clear()


def play(envs: MinAtarEnvs, steps: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [envs.step(rng.integers(6, size=envs.num_envs)) for _ in range(steps)]


def assert_same(one: list[Any], two: list[Any]) -> None:
    for left, right in zip(one, two, strict=True):
        for name, array in vars(left).items():
            np.testing.assert_array_equal(array, getattr(right, name), name)


def test_an_installed_game_is_found_and_other_games_are_the_packages() -> None:
    assert not isinstance(find_game("space_invaders"), PackageGame), f"nothing in the group {ENTRY_POINT_GROUP}"
    assert isinstance(find_game("breakout"), PackageGame)


def test_without_it_the_packages_game_plays_the_same(without_plugins: Callable[[], None]) -> None:
    fast = MinAtarEnvs(TASK, num_envs=3, seed=5, sticky=0.1)
    fast.reset()
    without_plugins()
    slow = MinAtarEnvs(TASK, num_envs=3, seed=5, sticky=0.1)
    slow.reset()
    assert isinstance(slow._game, PackageGame)
    assert_same(play(fast, 300, 1), play(slow, 300, 1))


def test_a_checkpoint_of_either_is_taken_up_by_the_other(without_plugins: Callable[[], None]) -> None:
    fast = MinAtarEnvs(TASK, num_envs=2, seed=5)
    fast.reset()
    play(fast, 150, 1)
    without_plugins()
    slow = MinAtarEnvs(TASK, num_envs=2, seed=99)
    slow.reset()
    slow.set_state(fast.get_state())
    assert_same(play(fast, 150, 2), play(slow, 150, 2))
