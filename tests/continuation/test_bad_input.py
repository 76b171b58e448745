"""Runs that cannot be continued or planned are refused in one line, and no byte on disk changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from clearl.cli.main import main
from clearl.config import RunConfig
from clearl.experiment import run
from clearl.records.run_dir import RunDir

SMALL: dict[str, Any] = {
    "runtime": "inline", "slots": 4, "batch_unrolls": 4, "unroll_steps": 5, "frames_per_visit": 100, "cycles": 1,
    "eval_every_frames": 100, "eval_episodes": 1, "eval_max_steps": 5, "replay_store": "disk", "buffer_frames": 100,
    "method": "clear", "torso": "auto", "learner_threads": 1,
}  # fmt: skip
NEXT = ("--tasks", "asterix", "--frames-per-visit", "100", "--quiet")
NEW = ("--runtime", "inline", "--frames-per-visit", "640", "--eval-max-steps", "1", "--quiet")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs: on MinAtar, and on CartPole."""
    place = tmp_path_factory.mktemp("runs")
    run(RunConfig(**SMALL, tasks=("breakout", "freeway")), place / "a", console=False)
    run(RunConfig(**SMALL, suite="gym:CartPole-v1"), place / "pole", console=False)
    return place


@pytest.fixture
def place(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = Path(shutil.copytree(runs, tmp_path / "work"))
    monkeypatch.chdir(copy)
    return copy


def files(path: Path) -> dict[str, bytes | None]:
    return {str(each.relative_to(path)): each.read_bytes() if each.is_file() else None for each in path.rglob("*")}


def refused(place: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line that the command says, having changed nothing."""
    before = files(place)
    capsys.readouterr()
    assert main(["run", *arguments]) in (1, 2)
    shown = capsys.readouterr()
    assert shown.err.startswith("clearl: ") and shown.err.count("\n") == 1 and shown.out == ""
    assert files(place) == before
    return shown.err


@pytest.mark.parametrize("way", ["--from", "--extend"])
def test_a_run_that_is_running(place: Path, capsys: Any, way: str) -> None:
    target = ("--out", "b") if way == "--from" else ()
    RunDir(place / "a").set_status("running")
    with RunDir(place / "a").locked():
        assert "a is being trained by another process" in refused(place, capsys, way, "a", *target, *NEXT)


@pytest.mark.parametrize("damaged", ["meta.json", "config.yaml", "metrics.jsonl", "arrays.safetensors", "version"])
def test_a_run_that_is_damaged_or_of_another_version(place: Path, capsys: Any, damaged: str) -> None:
    if damaged == "version":
        meta = json.loads((place / "a" / "meta.json").read_text()) | {"v": 99}
        (place / "a" / "meta.json").write_text(json.dumps({key: meta[key] for key in meta if key != "crc"}))
    for file in [file for file in (place / "a").rglob(damaged) if file.is_file()]:
        file.write_bytes(file.read_bytes()[:40])
    says = {
        "meta.json": "meta.json", "config.yaml": "config.yaml was changed after the run was made",
        "metrics.jsonl": "no good checkpoint is left", "arrays.safetensors": "no good checkpoint is left",
        "version": "is of version 99; this clearl reads version 1",
    }  # fmt: skip
    assert says[damaged] in refused(place, capsys, "--from", "a", "--out", "b", *NEXT)


def test_another_suite_and_another_kind_of_action(place: Path, capsys: Any) -> None:
    other = ("--suite", "gym:CartPole-v1", "--quiet")
    assert "it cannot go on with suite gym:CartPole-v1" in refused(place, capsys, "--from", "a", "--out", "b", *other)
    continuous = ("--suite", "gym:Pendulum-v1", "--quiet")
    line = refused(place, capsys, "--from", "pole", "--out", "b", *continuous)
    assert "CartPole-v1" in line and "Pendulum-v1" in line and "continuous" in line


def test_a_task_that_is_there_already(place: Path, capsys: Any) -> None:
    twice = ("--tasks", "asterix,asterix", "--quiet")
    assert "tasks must differ" in refused(place, capsys, "--from", "a", "--out", "b", *twice)
    before = files(place)
    assert main(["run", "--from", "a", "--out", "b", "--tasks", "breakout", "--frames-per-visit", "60"]) == 0
    assert "trained before, and visited again: breakout" in capsys.readouterr().out
    assert {name: files(place)[name] for name in before} == before


def test_a_budget_below_one_unroll_a_slot(place: Path, capsys: Any) -> None:
    for budget in (("--replay-budget", "1KB"), ("--buffer-frames", "10")):
        line = refused(place, capsys, "--from", "a", "--out", "b", *NEXT, *budget)
        assert "must be at least" in line
        assert "must be at least" in refused(place, capsys, *NEW, "--out", "b", *budget)


def test_a_drift_outside_of_what_the_environment_takes(place: Path, capsys: Any) -> None:
    drift = (*NEW, "--out", "b", "--protocol", "drift", "--suite")
    line = refused(place, capsys, *drift, "gym:CartPole-v1?length=-1..0")
    assert "'CartPole-v1?length=0' is outside of what CartPole-v1 takes" in line
    line = refused(place, capsys, *drift, "gym:Pendulum-v1?x_init=1..2", "--drift-applied", "at-once")
    assert "parameter x_init of Pendulum-v1 cannot be applied at once" in line


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ("segments: [{tasks: [pong], frames: 9}]", "'pong'"),
        ("segments: [{tasks: [breakout, freeway], weights: [0.5, 0.6], frames: 9}]", "sum to 1"),
        ("segments: [{tasks: [breakout]}]", "a segment ends either by frames or by episodes"),
        ("segments: []", "needs segments"),
    ],
)
def test_a_schedule_that_is_none(place: Path, capsys: Any, schedule: str, says: str) -> None:
    (place / "plan.yaml").write_text(schedule)
    planned = ("--protocol", "schedule", "--schedule", "plan.yaml")
    assert says in refused(place, capsys, *NEW, "--out", "b", *planned)
    assert says in refused(place, capsys, "--from", "a", "--out", "b", "--quiet", *planned)
