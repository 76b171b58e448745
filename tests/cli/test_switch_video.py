"""`clearl video --switch`: the weights of both sides are those that the segments ended with, in every runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from whole_runs import small_config

import clearl
from clearl import play
from clearl.artifacts import Trained, at_segment_end
from clearl.cli.main import main
from clearl.experiment import run
from clearl.nets.network import as_module
from clearl.records.reader import read_rows
from clearl.storage.switch_weights import SwitchWeights


@pytest.fixture(scope="module", params=["inline", "local"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("switch") / "run"
    run(small_config(cycles=1, frames_per_visit=300, runtime=request.param), out, console=False)
    return out


def test_the_weights_of_every_segments_end_are_kept(trained: Path) -> None:
    kept = SwitchWeights(trained)
    assert kept.segments() == [0, 1]
    last = as_module(clearl.load_agent(trained).network).state_dict()
    assert all(bool((kept.load(1)[name] == tensor).all()) for name, tensor in last.items())
    assert any(bool((kept.load(0)[name] != tensor).any()) for name, tensor in last.items())


def test_before_and_after_play_side_by_side_with_captions(trained: Path, capsys, monkeypatch) -> None:
    captions = []
    draw = play.with_caption
    monkeypatch.setattr(play, "with_caption", lambda picture, lines: captions.append(lines) or draw(picture, lines))
    assert main(["video", str(trained), "--switch", "1", "--max-steps", "20"]) == 0
    file = trained / "videos" / "breakout-switch-1.gif"
    assert str(file) in capsys.readouterr().out
    with Image.open(file) as film:
        assert film.size == (2 * 160 + 8, 160 + 3 * 14 + 4)
        assert film.n_frames > 1  # type: ignore[attr-defined]  # of GIFs
    assert {lines[:2] for lines in captions} == {("breakout", "before freeway"), ("breakout", "after freeway")}
    assert all(lines[2].startswith("score ") for lines in captions)


def test_each_side_is_the_agent_of_its_time(trained: Path) -> None:
    opened = Trained.open(trained)
    frames = np.random.default_rng(0).random((64, 7, 10, 10)) < 0.3
    before, after = (at_segment_end(opened, trained, segment).agent for segment in (0, 1))
    actions = [agent.act(frames, deterministic=True, channels=0).tolist() for agent in (before, after, opened.agent)]
    assert actions[1] == actions[2] != actions[0]


def test_a_switch_without_weights_is_one_line(trained: Path, capsys) -> None:
    for switch in ("2", "7"):
        assert main(["video", str(trained), "--switch", switch]) == 2
        assert f"holds no weights of switch {switch}; it holds those of: 1" in capsys.readouterr().err


def test_weights_that_cannot_be_kept_do_not_end_the_run(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SwitchWeights, "save", fail)
    result = run(small_config(cycles=1, frames_per_visit=100), tmp_path / "run", console=False)
    faults = [row["problem"] for row in read_rows(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "fault"]
    assert result.status == "finished" and len(faults) == 2
    assert all("weights of a switch are not kept" in problem for problem in faults)
