"""The life of a run: what it makes on the way, and how often."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
import torch
from whole_runs import SMALL, small_config

from clearl.cli.main import main
from clearl.experiment import run
from clearl.nets.network import as_module
from clearl.records.reader import read_rows
from clearl.records.schema import METRICS_FILE

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize(("runtime", "processes"), [("inline", 1), ("local", 4)])
def test_each_process_of_a_run_builds_its_network_once(runtime, processes, tmp_path, monkeypatch) -> None:
    """`local` runs a learner, two workers and an evaluator."""
    built = tmp_path / "built"
    monkeypatch.setenv("TORSOS_BUILT", str(built))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]))
    settings = {**SMALL, "tasks": "breakout,freeway", "cycles": 1, "runtime": runtime, "workers": 2}
    del settings["learner_threads"]
    flags = [part for key, value in settings.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    code = main(["run", *flags, "--imports", "counted_torso", "--torso", "counted", "--out", str(tmp_path / "run")])
    counts = Counter(built.read_text().split())
    assert code == 0 and len(counts) == processes
    assert set(counts.values()) == {1}
    assert counts[str(os.getpid())] == 1


@pytest.mark.parametrize(("suite", "warned"), [("gym:CartPole-v1", True), ("gym:Pendulum-v1", False)])
def test_entropy_near_zero_is_a_collapse_of_choices_only(
    suite: str, warned: bool, tmp_path, monkeypatch, capsys
) -> None:
    """The entropy of real numbers is a differential one, which a healthy policy takes below zero."""
    monkeypatch.setattr("clearl.records.collapse._entropy", lambda row, batch_steps: -0.5)
    run(
        small_config(suite=suite, tasks=(), cycles=1, frames_per_visit=300, record_every_updates=1),
        tmp_path / "run",
        console=False,
    )
    assert ("the policy is deterministic" in capsys.readouterr().err) == warned


def test_a_run_records_the_bytes_that_its_method_holds(tmp_path) -> None:
    """EWC holds a parameter and a Fisher value for each parameter of each task that it has left."""
    result = run(small_config(method="ewc", cycles=1, fisher_batches=2, lstm=False), tmp_path / "run", console=False)
    (summary,) = [row for row in read_rows(tmp_path / "run" / METRICS_FILE) if row["kind"] == "summary"]
    held = summary["memory_nbytes"]
    weights = sum(parameter.nbytes for parameter in as_module(result.agent.network).parameters())
    assert held["network"] == weights and held["replay"] == 0
    assert held["method"] >= 2 * weights


def test_the_threads_of_the_learner_are_set_for_the_run_and_no_longer(tmp_path: Path) -> None:
    during: list[int] = []
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        config = small_config(cycles=1, frames_per_visit=300, learner_threads=1)
        run(config, tmp_path, console=False, listeners=[lambda row: during.append(torch.get_num_threads())])
        assert set(during) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
