from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from clearl.config import RunConfig
from clearl.errors import UnknownNameError
from clearl.suites import make_suite
from clearl.suites.vizdoom import ACTIONS, BUTTONS, DoomGame, end_orphans, shrink

vizdoom = pytest.importorskip("vizdoom")


@pytest.fixture
def game(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DoomGame]:
    monkeypatch.chdir(tmp_path)
    game = DoomGame("my_way_home", repeat=4)
    game.start()
    yield game
    game.close()


def test_a_smaller_picture_holds_the_mean_of_every_area() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (120, 160, 3), np.uint8)
    fine = picture.astype(np.float64).repeat(3, 0).repeat(3, 1)
    expected = fine.reshape(72, 5, 96, 5, 3).mean((1, 3))
    assert np.abs(shrink(picture) - expected).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("scenario", BUTTONS)
def test_masks_follow_the_buttons_of_the_scenario(scenario: str) -> None:
    game = vizdoom.DoomGame()
    game.load_config(str(Path(vizdoom.scenarios_path) / f"{scenario}.cfg"))
    own = {button.name for button in game.get_available_buttons()}
    assert own == set(BUTTONS[scenario])
    mask = make_suite("vizdoom", (scenario,), RunConfig()).mask(scenario)
    assert mask.tolist() == [all(button in own for button in pressed) for pressed in ACTIONS]
    assert mask.sum() >= 2


def test_a_time_limit_truncates_and_shows_the_last_frame(game: DoomGame) -> None:
    game.reset(seed=1)
    turn_left = 4
    answers = [game.step(turn_left) for _ in range(525)]
    # The scenario gives 2100 tics.
    ends = [(terminated, truncated) for _, _, terminated, truncated, _ in answers]
    assert ends == [(False, False)] * 524 + [(False, True)]
    assert not np.array_equal(answers[-1][0], answers[-2][0])


def test_episodes_differ_but_follow_from_the_seed(game: DoomGame) -> None:
    first, second = game.reset(seed=1)[0], game.reset()[0]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(game.reset(seed=1)[0], first)
    np.testing.assert_array_equal(game.reset()[0], second)


def test_nothing_is_left_in_the_working_directory(game: DoomGame) -> None:
    game.reset(seed=1)
    game.step(0)
    assert list(Path.cwd().iterdir()) == []


def test_a_killed_worker_leaves_no_game_behind() -> None:
    code = (
        "import time; from clearl.suites.vizdoom import DoomGame\n"
        "game = DoomGame('basic', repeat=4); game.start(); print('started', flush=True); time.sleep(100)"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tempfile.gettempdir())
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"started\n"
    (game,) = psutil.Process(worker.pid).children()
    worker.kill()
    worker.wait()
    worker.stdout.close()
    assert game.is_running()
    end_orphans()
    psutil.wait_procs([game], timeout=10)
    assert not game.is_running()


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'my_way_home'"):
        make_suite("vizdoom", ("my_way_hom",), RunConfig())
