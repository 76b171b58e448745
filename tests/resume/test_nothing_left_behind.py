"""A command that fails its checks makes no directory, so that the mended command runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from clearl.cli.main import main

TINY = [
    *("run", "--suite", "minatar", "--tasks", "breakout", "--slots", "4", "--batch-unrolls", "4"),
    *("--frames-per-visit", "80", "--eval-episodes", "1", "--eval-max-steps", "5", "--quiet"),
]


def _absent(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(package + ".")]:
        monkeypatch.delitem(sys.modules, name)


def _without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def _without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("clearl.experiment.find_spec", lambda name: None if name == "ray" else find(name))


def _without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(login=lambda **_: False))
    monkeypatch.delenv("WANDB_MODE", raising=False)


def _with_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearl.wiring.free_nbytes", lambda path: 100_000)


CASES = {
    "full disk": (_with_a_full_disk, [], "checkpoints do not fit"),
    "cuda": (_without_devices, ["--device", "cuda"], "torch sees: cpu"),
    "mps": (_without_devices, ["--device", "mps"], "torch sees: cpu"),
    "tensorboard": (lambda patch: _absent(patch, "tensorboard"), ["--tensorboard"], "pip install"),
    "wandb": (lambda patch: _absent(patch, "wandb"), ["--wandb"], "pip install"),
    "key": (_without_a_key, ["--wandb"], "wandb login"),
    "ray": (_without_ray, ["--runtime", "ray"], "pip install"),
    "torso": (lambda patch: None, ["--torso", "impala_deep", "--lstm-size", "0"], "lstm_size"),
    "protocol": (lambda patch: None, ["--protocol", "sideways"], "sequential"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_command_that_fails_its_checks_leaves_nothing_behind(case, tmp_path: Path, monkeypatch, capsys) -> None:
    prepare, flags, said = CASES[case]
    prepare(monkeypatch)
    out = tmp_path / "new" / "run"
    assert main([*TINY, *flags, "--out", str(out)]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    if case == "cuda":
        assert main([*TINY, "--runtime", "inline", "--out", str(out)]) == 0
