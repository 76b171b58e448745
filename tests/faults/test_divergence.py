from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import torch
from whole_runs import rows, small_config

from clearl.cli.main import main
from clearl.config import from_yaml
from clearl.errors import DivergedError
from clearl.experiment import run
from clearl.learning.learner import Learner, UpdateStats
from clearl.methods.clear import Clear
from clearl.nets.network import PolicyNetwork, as_module
from clearl.records.run_dir import RunDir
from clearl.storage.checkpoints import CheckpointStore
from clearl.types import Batch, Visit

CONFIG = small_config(cycles=1, record_every_updates=1)


def poison(patch: pytest.MonkeyPatch, bad: Callable[[int], bool], kind: str) -> None:
    """Make CLEAR's losses or their gradients go bad at some of its updates."""
    sound, calls = Clear.losses, itertools.count()

    def losses(method: Clear, network: PolicyNetwork, batch: Batch) -> dict[str, torch.Tensor]:
        terms = sound(method, network, batch)
        if bad(next(calls)):
            some = next(iter(as_module(network).parameters()))
            # The root of zero is finite, its slope is not.
            harm = {"nan": float("nan"), "inf": float("inf"), "slope": (0 * some).square().sum().sqrt()}[kind]
            terms["value"] = terms["value"] + harm
        return terms

    patch.setattr(Clear, "losses", losses)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """Record for every update whether it was applied, and whether parameters or optimiser changed."""
    seen: list[tuple[bool, bool]] = []
    phases = Learner.phases

    def watched(learner: Learner, batch: Batch, visit: Visit | None) -> Generator[str, None, UpdateStats]:
        before = {name: tensor.clone() for name, tensor in learner.tensors().items()}
        stats = yield from phases(learner, batch, visit)
        after = learner.tensors()
        changed = before.keys() != after.keys() or any(not torch.equal(before[name], after[name]) for name in after)
        seen.append((stats.applied, changed))
        return stats

    monkeypatch.setattr(Learner, "phases", watched)
    return seen


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
@pytest.mark.parametrize("kind", ["nan", "inf", "slope"])
def test_bad_updates_change_nothing_and_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[bool, bool]], kind: str, optimizer: str
) -> None:
    poison(monkeypatch, lambda call: call in (3, 4, 9) or 20 <= call < 29, kind)
    config = small_config(cycles=1, record_every_updates=1, optimizer=optimizer)
    assert run(config, tmp_path, console=False).status == "finished"
    bad = [number for number, (applied, _) in enumerate(steps) if not applied]
    assert bad == [3, 4, 9, *range(20, 29)]
    assert all(applied == changed for applied, changed in steps)
    assert [row["bad_updates"] for row in rows(tmp_path, "train")][-1] == 12


def test_ten_in_a_row_stop_the_run_and_point_to_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[bool, bool]]
) -> None:
    poison(monkeypatch, lambda call: call >= 30, "nan")
    with pytest.raises(DivergedError, match="10 times in a row, until update 40") as caught:
        run(CONFIG, tmp_path, console=False)
    newest = CheckpointStore(tmp_path / "checkpoints").newest()
    assert newest is not None and str(newest.path) in str(caught.value)
    assert RunDir.open(tmp_path).status == "failed"
    assert all(torch.isfinite(t).all() for t in newest.tree["learner"]["tensors"].values())
    assert [row["updates"] for row in rows(tmp_path, "train")] == list(range(1, 40))


def test_the_error_names_a_command_that_goes_on_with_a_lower_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a run"
    with monkeypatch.context() as patch:
        poison(patch, lambda call: call >= 30, "nan")
        with pytest.raises(DivergedError) as caught:
            run(CONFIG, out, console=False)
    named = re.search(r"clearl (run --extend .*) plays the tasks anew from there", str(caught.value))
    assert named is not None
    assert main([*shlex.split(named[1]), "--quiet"]) == 0
    config = from_yaml(RunDir.open(out).config_text)
    assert config.learning_rate == pytest.approx(CONFIG.learning_rate / 10)
    *past, one, two = RunDir.open(out).meta["plan"]["segments"]
    assert past and [each["tasks"] for each in (one, two)] == [["breakout"], ["freeway"]]
    assert RunDir.open(out).status == "finished"


def test_a_run_without_a_checkpoint_is_to_start_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, lambda call: True, "nan")
    with pytest.raises(DivergedError, match="there is no checkpoint yet, so start anew with --overwrite"):
        run(small_config(cycles=1, checkpoint_every_frames=None), tmp_path, console=False)


def test_a_run_that_stopped_so_goes_on_when_the_cause_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        poison(patch, lambda call: call >= 30, "inf")
        with pytest.raises(DivergedError):
            run(CONFIG, tmp_path, console=False)
    assert run(CONFIG, tmp_path, console=False).status == "finished"
