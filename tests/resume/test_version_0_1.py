"""Run directories that version 0.1 wrote are still read, exported and trained on."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from whole_runs import small_config, state

from clearl.artifacts import Trained, export_agent, load_agent
from clearl.config import from_yaml
from clearl.errors import ConfigError
from clearl.experiment import run
from clearl.methods.anchors import OnlineAnchor
from clearl.play import evaluate
from clearl.records.schema import Row

RUNS = Path(__file__).parents[1] / "data" / "version-0.1"


def test_a_finished_run_plays_and_can_be_exported(tmp_path: Path) -> None:
    out = Path(shutil.copytree(RUNS / "finished", tmp_path / "finished"))
    assert [done.task for done in evaluate(Trained.open(out), episodes=1)] == ["CartPole-v1", "Acrobot-v1"]
    export_agent(out, tmp_path / "agent")
    assert 0 <= load_agent(tmp_path / "agent").act(np.zeros(6)) < 3


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    out = Path(shutil.copytree(RUNS / "interrupted", tmp_path / "interrupted"))
    assert run(from_yaml((out / "config.yaml").read_text()), out, console=False).status == "finished"


@pytest.mark.parametrize("method", ["online-ewc", "progress-compress"])
def test_a_running_fisher_of_another_scale_is_refused_and_nothing_is_touched(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, told = small_config(method=method, fisher_batches=2), []

    def stop_in_second_visit(row: Row) -> None:
        if row["kind"] == "eval" and row["frames"] > 1500 and not told:
            told.append(os.kill(os.getpid(), signal.SIGTERM))

    with monkeypatch.context() as patch:
        patch.setattr(OnlineAnchor, "state", lambda self: {})  # as version 0.1 saved it
        assert run(config, tmp_path, console=False, listeners=[stop_in_second_visit]).status == "interrupted"
    before, rows = state(tmp_path), (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=r"Fisher of unit norm, as version 0\.1 .* train anew with --overwrite"):
        run(config, tmp_path, console=False)
    assert (tmp_path / "metrics.jsonl").read_bytes().startswith(rows)
    assert state(tmp_path)["learner"]["state"]["counters"] == before["learner"]["state"]["counters"]
