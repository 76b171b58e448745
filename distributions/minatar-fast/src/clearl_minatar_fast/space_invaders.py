"""MinAtar's Space Invaders with its three maps as numbers of 100 bits: the same game, stepped many times as fast.

The package's own takes 24 microseconds for a step and its frame, most of them in NumPy calls on maps of 10x10; this one
takes 1.3. A map is one integer, the cell in row r and column c its bit 10 r + c, so that a row up or down is a shift by
ten. Checkpoints hold the maps as the package has them. Tests play both games side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

SIZE = 10
CHANNELS = 6  # cannon, alien, alien moving left, alien moving right, friendly bullet, enemy bullet
LEFT, RIGHT, FIRE = 1, 3, 5
_CELLS = SIZE * SIZE
_MAP_NBYTES = -(-_CELLS // 8)
_ALL = (1 << _CELLS) - 1
_BOTTOM_ROW = _CELLS - SIZE
_COLUMNS = [sum(1 << row * SIZE + column for row in range(SIZE)) for column in range(SIZE)]
_NEAREST_FIRST = [[_COLUMNS[c] for c in sorted(range(SIZE), key=lambda c: abs(c - pos))] for pos in range(SIZE)]
_WAVE = sum(1 << row * SIZE + column for row in range(4) for column in range(2, 8))
_SHOT_COOL_DOWN, _MOVE_INTERVAL, _LEAST_MOVE_INTERVAL, _ENEMY_SHOT_INTERVAL = 5, 12, 6, 10
_MAPS = ("f_bullet_map", "e_bullet_map", "alien_map")


class SpaceInvaders:
    """One game, with the package's names for what it remembers. It draws no random numbers of its own."""

    def __init__(self) -> None:
        self.random = np.random.RandomState(0)
        self.ramping = True
        self.reset()

    def reset(self) -> None:
        self.pos = 5
        self.f_bullet_map, self.e_bullet_map, self.alien_map = 0, 0, _WAVE
        self.alien_dir = -1
        self.enemy_move_interval = self.alien_move_timer = _MOVE_INTERVAL
        self.alien_shot_timer = _ENEMY_SHOT_INTERVAL
        self.ramp_index = self.shot_timer = 0
        self.terminal = False

    def act(self, action: int) -> tuple[int, bool]:
        """Play one step; return the reward, and whether the game is over."""
        if self.terminal:
            return 0, True
        if action == FIRE and self.shot_timer == 0:
            self.f_bullet_map |= 1 << _BOTTOM_ROW + self.pos
            self.shot_timer = _SHOT_COOL_DOWN
        elif action == LEFT:
            self.pos = max(0, self.pos - 1)
        elif action == RIGHT:
            self.pos = min(SIZE - 1, self.pos + 1)
        self.f_bullet_map >>= SIZE
        self.e_bullet_map = self.e_bullet_map << SIZE & _ALL
        self._die_if_hit(self.e_bullet_map | self.alien_map)
        if self.alien_move_timer == 0:
            self._move_aliens()
        if self.alien_shot_timer == 0:
            self.alien_shot_timer = _ENEMY_SHOT_INTERVAL
            self._shoot_back()
        killed = self.alien_map & self.f_bullet_map
        self.alien_map ^= killed
        self.f_bullet_map ^= killed
        self.shot_timer -= self.shot_timer > 0
        self.alien_move_timer -= 1
        self.alien_shot_timer -= 1
        if not self.alien_map:
            self._next_wave()
        return killed.bit_count(), self.terminal

    def variables(self) -> dict[str, Any]:
        """Return what the package's game has in `vars`, without the names of channels and actions."""
        return {
            name: _as_array(value) if name in _MAPS else value for name, value in vars(self).items() if name != "random"
        }

    def restore(self, variables: dict[str, Any]) -> None:
        """Take up `variables`."""
        for name, value in variables.items():
            setattr(self, name, _as_number(value) if name in _MAPS else value)

    def _move_aliens(self) -> None:
        aliens = self.alien_map
        self.alien_move_timer = min(aliens.bit_count(), self.enemy_move_interval)
        if aliens & _COLUMNS[0 if self.alien_dir < 0 else -1]:
            self.alien_dir = -self.alien_dir
            landed = aliens >> _BOTTOM_ROW
            self.terminal = self.terminal or landed > 0
            self.alien_map = aliens << SIZE & _ALL | landed
        else:
            self.alien_map = aliens >> 1 if self.alien_dir < 0 else aliens << 1
        self._die_if_hit(self.alien_map)

    def _shoot_back(self) -> None:
        """Shoot from the lowest alien in the nearest column that has one."""
        column = next(column for column in _NEAREST_FIRST[self.pos] if self.alien_map & column)
        self.e_bullet_map |= 1 << (self.alien_map & column).bit_length() - 1

    def _next_wave(self) -> None:
        if self.enemy_move_interval > _LEAST_MOVE_INTERVAL and self.ramping:
            self.enemy_move_interval -= 1
            self.ramp_index += 1
        self.alien_map = _WAVE

    def _die_if_hit(self, by: int) -> None:
        if by >> _BOTTOM_ROW + self.pos & 1:
            self.terminal = True


def look(games: Sequence[SpaceInvaders]) -> np.ndarray:
    """Return the observation of each game, [n, CHANNELS, 10, 10] bool."""
    maps = b"".join([_maps(game) for game in games])
    return _cells(np.frombuffer(maps, np.uint8).reshape(len(games), CHANNELS, _MAP_NBYTES))


def _maps(game: SpaceInvaders) -> bytes:
    """Return all channels, one after the other in one number."""
    aliens, width = game.alien_map, 8 * _MAP_NBYTES
    channels = 1 << _BOTTOM_ROW + game.pos | aliens << width | aliens << (2 if game.alien_dir < 0 else 3) * width
    channels |= game.f_bullet_map << 4 * width | game.e_bullet_map << 5 * width
    return channels.to_bytes(CHANNELS * _MAP_NBYTES, "little")


def _cells(maps: np.ndarray) -> np.ndarray:
    """Unpack [..., bytes] to [..., 10, 10] bool."""
    bits = np.unpackbits(maps, axis=-1, count=_CELLS, bitorder="little")
    return bits.view(np.bool_).reshape(*maps.shape[:-1], SIZE, SIZE)


def _as_array(number: int) -> np.ndarray:
    return _cells(np.frombuffer(number.to_bytes(_MAP_NBYTES, "little"), np.uint8)).astype(np.float64)


def _as_number(cells: np.ndarray) -> int:
    if np.shape(cells) != (SIZE, SIZE):
        raise ValueError(f"a map of Space Invaders has {SIZE}x{SIZE} cells, not the shape {np.shape(cells)}")
    return int.from_bytes(np.packbits(np.asarray(cells) != 0, bitorder="little").tobytes(), "little")


class _Game:
    """Makes, shows, saves and restores games for clearl; see `clearl.suites.minatar_games.Game`."""

    def make(self) -> SpaceInvaders:
        return SpaceInvaders()

    def look(self, games: Sequence[SpaceInvaders]) -> np.ndarray:
        return look(games)

    def variables(self, game: SpaceInvaders) -> dict[str, Any]:
        return game.variables()

    def restore(self, game: SpaceInvaders, variables: dict[str, Any]) -> None:
        game.restore(variables)


GAME = _Game()
