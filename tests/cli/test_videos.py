"""`clearl video` shows environments that draw themselves; its scores do not depend on how it is drawn."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from whole_runs import small_config

from clearl.artifacts import Trained
from clearl.cli.main import main
from clearl.errors import NoPictureError
from clearl.experiment import run
from clearl.play import record_video
from clearl.suites.environments import EnvironmentSuite

CAPTION = 2 * 21 + 4
NO_TASKS = {"tasks": (), "cycles": 1, "frames_per_visit": 100}


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("video") / "run"
    run(small_config(suite="gym:CartPole-v1,Acrobot-v1", **NO_TASKS), out, console=False)
    return out


def pictures(file: Path) -> list[np.ndarray]:
    with Image.open(file) as film:
        frames = range(film.n_frames)  # type: ignore[attr-defined]  # of GIFs
        return [np.asarray((film.seek(index), film.convert("RGB"))[1]) for index in frames]


def test_cartpole_is_drawn_as_gymnasium_draws_it(cartpole: Path, capsys) -> None:
    assert main(["video", str(cartpole), "--max-steps", "5"]) == 0
    assert "observes" not in capsys.readouterr().err
    film = pictures(cartpole / "videos" / "CartPole-v1.gif")
    assert film[0].shape == (CAPTION + 320, 480, 3)  # 600 x 400, made smaller
    white = (film[0][CAPTION:] == 255).all(-1).mean()
    assert 0.9 < white < 1.0  # a cart and its pole on white, no bars
    assert (film[0][CAPTION:] != film[-1][CAPTION:]).any()


def test_before_and_after_a_switch_are_drawn_side_by_side(cartpole: Path) -> None:
    assert main(["video", str(cartpole), "--switch", "1", "--max-steps", "3", "--out", str(cartpole / "both.gif")]) == 0
    film = pictures(cartpole / "both.gif")
    assert film[0].shape == (3 * 21 + 4 + 1 + 320, 2 * 480 + 8, 3)  # made even
    left, right = film[0][67:, :480], film[0][67:, 488:]
    assert (left == right).mean() > 0.99  # the same seed begins with the same state


def test_what_cannot_be_drawn_shows_observations_and_says_so_in_one_line(
    cartpole: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NoPictureError("CartPole-v1 cannot draw itself here: no OpenGL")

    trained = Trained.open(cartpole)
    drawn = record_video(trained, cartpole / "drawn.gif", episodes=3, max_steps=500)
    monkeypatch.setattr(EnvironmentSuite, "make_scene", refuse)
    assert record_video(trained, cartpole / "bars.gif", episodes=3, max_steps=500) == drawn
    capsys.readouterr()
    for more in ((), ("--switch", "1")):
        assert main(["video", str(cartpole), "--max-steps", "3", *more, "--out", str(cartpole / "bars.gif")]) == 0
        said = [line for line in capsys.readouterr().err.splitlines() if ", after" not in line]
        assert said == [
            "clearl: CartPole-v1 cannot draw itself here: no OpenGL; the video shows what the agent observes"
        ]
    assert pictures(cartpole / "bars.gif")[0].shape[1] == 2 * 256 + 8  # bars, twice as large


@pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="needs the extra mujoco")
def test_mujoco_is_drawn_without_a_display(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    run(small_config(suite="mujoco", **{**NO_TASKS, "tasks": ("hopper",)}), tmp_path / "run", console=False)
    assert main(["video", str(tmp_path / "run"), "--max-steps", "2"]) == 0
    assert "observes" not in capsys.readouterr().err
    (film, *_) = pictures(tmp_path / "run" / "videos" / "hopper.gif")
    assert film.shape == (CAPTION + 480, 480, 3)
    assert len(np.unique(film[CAPTION:].reshape(-1, 3), axis=0)) > 50  # a lit scene


def test_a_film_that_breaks_off_leaves_no_file(cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(*_: object) -> object:
        yield np.zeros((10, 10, 3), np.uint8), 0.0
        raise KeyboardInterrupt

    monkeypatch.setattr("clearl.play._play", play)
    for ending in ("gif", "mp4"):
        with pytest.raises(KeyboardInterrupt):
            record_video(Trained.open(cartpole), cartpole / f"broken/film.{ending}", episodes=1, max_steps=3)
    assert os.listdir(cartpole / "broken") == []
