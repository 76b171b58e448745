"""Run directories that version 0.1 wrote are still read, exported and trained on."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from clearl.artifacts import Trained, export_agent, load_agent
from clearl.config import from_yaml
from clearl.experiment import run
from clearl.play import evaluate

RUNS = Path(__file__).parents[1] / "data" / "version-0.1"


def test_a_finished_run_plays_and_can_be_exported(tmp_path: Path) -> None:
    out = Path(shutil.copytree(RUNS / "finished", tmp_path / "finished"))
    assert [done.task for done in evaluate(Trained.open(out), episodes=1)] == ["CartPole-v1", "Acrobot-v1"]
    export_agent(out, tmp_path / "agent")
    assert 0 <= load_agent(tmp_path / "agent").act(np.zeros(6)) < 3


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    out = Path(shutil.copytree(RUNS / "interrupted", tmp_path / "interrupted"))
    assert run(from_yaml((out / "config.yaml").read_text()), out, console=False).status == "finished"
