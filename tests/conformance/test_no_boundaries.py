"""A method without `needs_boundaries` is told neither the task, nor its index, nor the switch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import clearl.acting.worker
import clearl.wiring
from clearl.config import RunConfig
from clearl.experiment import run
from clearl.learning.batching import Pairs
from clearl.methods import make_method
from clearl.methods.method import Method
from clearl.records.reader import scan_rows
from clearl.replay.labels import Label
from clearl.types import Batch
from clearl.unroll import FIELD_NAMES, Unroll

TASKS = ("breakout", "breakout@1")
SMALL: dict[str, Any] = {
    "tasks": TASKS, "runtime": "inline", "slots": 4, "batch_unrolls": 4, "unroll_steps": 5, "frames_per_visit": 100,
    "cycles": 2, "eval_every_frames": 200, "eval_episodes": 1, "eval_max_steps": 20, "replay_store": "ram",
    "record_every_updates": 2,
}  # fmt: skip


class Spy:
    """Stands in for a method and writes down everything that it is given."""

    def __init__(self, base: Method) -> None:
        self.base, self.visits = base, 0
        self.seen: list[Batch] = []

    def losses(self, network: Any, batch: Batch) -> dict[str, torch.Tensor]:
        self.seen.append(batch)
        return self.base.losses(network, batch)

    def visit(self, network: Any, visit: Any) -> None:
        self.visits += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)


def run_with_spy(monkeypatch: pytest.MonkeyPatch, out: Path, **changes: Any) -> list[Spy]:
    spies: list[Spy] = []

    def make_spied(config: RunConfig) -> Any:
        spies.append(Spy(make_method(config)))
        return spies[-1]

    monkeypatch.setattr(clearl.wiring, "make_method", make_spied)
    run(RunConfig(**{**SMALL, **changes}), out, console=False)
    return [spy for spy in spies if spy.seen]


def test_clear_sees_experience_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (spy,) = run_with_spy(monkeypatch, tmp_path / "run")
    assert len(spy.seen) == 2 * 2 * 100 // 20
    assert spy.visits == 0
    # Nothing in a batch can carry a task: its fields are the paper's A.3 and no more, all of them numbers.
    names = {
        "observation", "first", "last_action", "last_reward", "core_state", "action", "reward", "discount", "valid",
        "mask", "behaviour_policy", "behaviour_value", "is_replay",
    }  # fmt: skip
    assert {field.name for field in dataclasses.fields(Batch)} == names
    assert all(isinstance(tensor, torch.Tensor) for batch in spy.seen for tensor in batch)


def test_the_labels_of_stored_unrolls_reach_no_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Bit for bit the same batches, and the same network, whatever the labels in replay say."""
    (spy,) = run_with_spy(monkeypatch, tmp_path / "honest")
    names = itertools.cycle(["", "x" * 300, "breakout", "freeway"])

    def nonsense(new: Unroll, tasks: Sequence[str], frames: int) -> list[Label]:
        return [Label(next(names), 7 * frames + 1, -1e6) for _ in tasks]

    monkeypatch.setattr(clearl.acting.worker, "labels_of", nonsense)
    (other,) = run_with_spy(monkeypatch, tmp_path / "nonsense")
    assert len(spy.seen) == len(other.seen) and any(batch.is_replay.any() for batch in spy.seen)
    for one, two in zip(spy.seen, other.seen, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert {*FIELD_NAMES} == {
        "frames", "first", "action", "reward", "terminated", "valid", "policy", "value", "mask", "last_action",
        "last_reward", "core_state",
    }  # fmt: skip
    assert {field.name for field in dataclasses.fields(Pairs)} == {"slots", "new", "replay", "version"}
    composition = [_by_task(tmp_path / name) for name in ("honest", "nonsense")]
    assert composition[0].keys() <= {*TASKS} and composition[1].keys() > composition[0].keys(), "labels did differ"


def _by_task(path: Path) -> dict[str, Any]:
    rows = scan_rows(path / "metrics.jsonl").rows
    return [row["replay"]["by_task"] for row in rows if "by_task" in row.get("replay", {})][-1]


@pytest.mark.parametrize(("fraction", "replayed"), [(0.0, 0), (0.25, 1), (0.5, 2), (1.0, 4)])
def test_the_share_of_replay_is_exact(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fraction: float, replayed: int
) -> None:
    (spy,) = run_with_spy(monkeypatch, tmp_path / "run", replay_fraction=fraction)
    shares = [int(batch.is_replay.sum()) for batch in spy.seen]
    # In the first round no slot has a past to replay; from then on every batch has its share.
    assert shares[0] == 0 and set(shares[1:]) == {replayed}


def test_a_method_that_needs_boundaries_is_told_of_every_update(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Spy, "needs_boundaries", True, raising=False)
    (spy,) = run_with_spy(monkeypatch, tmp_path / "run")
    assert spy.visits == len(spy.seen)
