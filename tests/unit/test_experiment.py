"""The life of a run: what it makes on the way, and how often."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from whole_runs import SMALL

from clearl.cli.main import main

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
