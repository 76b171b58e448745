"""`clearl reproduce` at smoke scale: every experiment, its report, and nothing run twice."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clearl.cli.reproduce import main
from clearl.errors import ConfigError
from clearl.reproduce.catalog import EXPERIMENTS


def reproduce(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "clearl", "reproduce", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_ends_with_its_report(name: str, out: Path) -> None:
    if name == "mujoco":
        pytest.importorskip("mujoco")
    done = reproduce(name, "--scale", "smoke", "--out", str(out))
    assert done.returncode == 0, done.stderr
    own = {
        "streams": "schemes-drift",
        "control": "control-schemes",
        "pendulum": "pendulum",
        "mujoco": "half-cheetah",
        "changed-actions": "swapped",
    }
    report = out / "reports" / name / own.get(name, "schemes")
    summary = json.loads((report / "summary.json").read_text())
    arms = {arm.partition(" (probe")[0] for arm in summary["arms"]}
    assert arms == set(EXPERIMENTS[name].arms)
    assert (report / "index.html").stat().st_size > 10_000
    assert json.loads((report / "findings.json").read_text())


def test_shared_runs_are_run_once(tmp_path: Path) -> None:
    assert reproduce("interference", "--scale", "smoke", "--out", str(tmp_path)).returncode == 0
    shared = reproduce("stability", "--scale", "smoke", "--out", str(tmp_path))
    assert "3 of 5 runs are finished already" in shared.stdout


def test_a_sequence_whose_package_is_missing_is_told_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def hidden(name: str, *rest: Any) -> Any:
        return None if name == "mujoco" else found(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    with pytest.raises(ConfigError, match=r"clearl\[mujoco\].*; or run --only control-schemes"):
        main(["control", "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_the_paper_says_what_is_missing() -> None:
    done = reproduce("stability", "--scale", "paper", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "15 runs, 13,500,000,000 frames" in done.stdout
    assert "deepmind_lab" in done.stdout
    told = re.search(r"at least ([\d,.]+) hours at [\d,]+ frames/s .*the learner alone.* ([\d,.]+) GB", done.stdout)
    assert told and float(told[1].replace(",", "")) > 1 and float(told[2].replace(",", "")) > 1
    assert "guessed: cycles: 5 visits of 60M frames" in done.stdout and "paper-dmlab-soft-clip" in done.stdout
    assert "guessed" not in reproduce("stability", "--scale", "smoke", "--dry-run").stdout


def test_one_sequence_of_tasks_alone() -> None:
    games = reproduce("buffers", "--only", "games", "--dry-run")
    assert games.returncode == 0, games.stderr
    assert "games: 6 runs" in games.stdout and "schemes" not in games.stdout
    other = reproduce("plasticity", "--only", "games", "--dry-run")
    assert other.returncode == 2 and "schemes" in other.stderr
