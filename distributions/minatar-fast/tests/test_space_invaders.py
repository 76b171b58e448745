"""Space Invaders on integers, played side by side with the package's own game."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from clearl_minatar_fast.space_invaders import FIRE, LEFT, RIGHT, SpaceInvaders, look

from clearl.suites.minatar_games import game_module

UNSEEN = ("random", "channels", "action_map")


def assert_same(ours: SpaceInvaders, theirs: Any) -> None:
    expected = {name: value for name, value in vars(theirs).items() if name not in UNSEEN}
    got = ours.variables()
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, name)
    np.testing.assert_array_equal(look([ours])[0], theirs.state().transpose(2, 0, 1))


def play(ours: SpaceInvaders, theirs: Any, rng: np.random.Generator, steps: int, *, immortal: bool) -> dict[str, int]:
    """Both, with actions that mostly shoot; what came up on the way."""
    seen = {"deaths": 0, "rewards": 0, "landings": 0, "waves": 0}
    for _ in range(steps):
        action = int(rng.choice([FIRE, FIRE, FIRE, LEFT, RIGHT, 0, 2, 4]))
        gained, over = ours.act(action)
        assert (gained, over) == theirs.act(action)
        assert_same(ours, theirs)
        seen["deaths"] += over
        seen["rewards"] += gained
        seen["landings"] += bool(theirs.alien_map[9].any())
        seen["waves"] = max(seen["waves"], theirs.ramp_index)
        if over and immortal:
            ours.terminal = theirs.terminal = False
        elif over:
            assert ours.act(FIRE) == (0, True) == theirs.act(FIRE)
            ours.reset()
            theirs.reset()
            assert_same(ours, theirs)
    return seen


@pytest.mark.parametrize("seed", range(5))
def test_both_games_agree_on_everything_at_every_step(seed: int) -> None:
    ours, theirs = SpaceInvaders(), game_module("space_invaders").Env(ramping=True)
    assert_same(ours, theirs)
    seen = play(ours, theirs, np.random.default_rng(seed), 2000, immortal=False)
    assert seen["deaths"] > 10 and seen["rewards"] > 100


def test_they_agree_in_late_waves_and_when_aliens_land() -> None:
    """A player who goes on when hit gets that far."""
    ours, theirs = SpaceInvaders(), game_module("space_invaders").Env(ramping=True)
    seen = play(ours, theirs, np.random.default_rng(7), 6000, immortal=True)
    assert seen["landings"] > 0 and seen["waves"] == 6, seen


def test_each_takes_up_what_the_other_has_left() -> None:
    rng, game = np.random.default_rng(3), game_module("space_invaders")
    ours, theirs = SpaceInvaders(), game.Env(ramping=True)
    play(ours, theirs, rng, 137, immortal=True)
    again, other = SpaceInvaders(), game.Env(ramping=True)
    again.restore({name: value for name, value in vars(theirs).items() if name not in UNSEEN})
    vars(other).update(ours.variables())
    assert_same(again, other)
    play(again, other, rng, 500, immortal=True)


def test_a_map_of_another_size_is_refused() -> None:
    game = SpaceInvaders()
    with pytest.raises(ValueError, match="10x10 cells"):
        game.restore({"alien_map": np.zeros((9, 10))})
