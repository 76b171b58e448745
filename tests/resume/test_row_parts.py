"""A run whose rows are closed in many parts is as it is without them: resumed, reported, extended, watched."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from whole_runs import assert_same_runs, rows, small_config

from clearl.continuation import go_on
from clearl.experiment import run
from clearl.records.schema import Row
from clearl.records.table import MetricsTable
from clearl.report import make_report
from clearl.watch.library import WatchedRun

CONFIG = small_config()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plain") / "run"
    run(CONFIG, out, console=False)
    assert not list(out.glob("*.zst")), "a run that is not large has no parts"
    return out


@pytest.fixture(autouse=True)
def small_parts(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearl.records.writer.PART_NBYTES", 1500)


def stop_at(updates: int):
    def stop(row: Row) -> None:
        if row["kind"] == "train" and row["updates"] >= updates:
            os.kill(os.getpid(), signal.SIGTERM)

    return stop


def test_the_same_rows_after_stops_in_the_middle(plain: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for updates in (14, 35, 49):
        assert run(CONFIG, out, console=False, listeners=[stop_at(updates)]).status == "interrupted"
    assert run(CONFIG, out, console=False).status == "finished"
    assert len(list(out.glob("metrics-*.jsonl.zst"))) > 3
    assert_same_runs(plain, out, CONFIG)
    assert len(MetricsTable.read(out)) == len(rows(out)) + 3, "and one row for each resume"


def test_a_checkpoint_older_than_the_last_parts_takes_them_back(plain: Path, tmp_path: Path) -> None:
    """The newest checkpoint is lost, so that rows behind the one before it are written anew."""
    out = tmp_path / "run"
    assert run(CONFIG, out, console=False, listeners=[stop_at(56)]).status == "interrupted"
    newest = max((out / "checkpoints").iterdir())
    (newest / "arrays.safetensors").write_bytes(b"damaged")
    assert run(CONFIG, out, console=False).status == "finished"
    trained = [row["updates"] for row in rows(out, "train")]
    assert trained == [row["updates"] for row in rows(plain, "train")], "each row is there once"
    assert rows(out, "eval") == rows(plain, "eval")


def test_report_watch_and_the_next_task_read_all_parts(plain: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(CONFIG, out, console=False)
    assert list(out.glob("metrics-*.jsonl.zst"))
    for path, name in ((plain, "one"), (out, "other")):
        make_report([path], tmp_path / name)
    one, other = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("one", "other"))
    assert one["arms"] == other["arms"] and one["notes"] == other["notes"]
    shown = [WatchedRun("x", "x", path).snapshot() for path in (plain, out)]
    assert shown[0]["rows"] == shown[1]["rows"] and shown[0]["frames"] == shown[1]["frames"]
    config = go_on(out, tmp_path / "next", {"tasks": ("asterix",), "frames_per_visit": 200, "cycles": 1})
    run(config, tmp_path / "next", console=False)
    assert rows(tmp_path / "next", "eval")[: len(rows(plain, "eval"))] == rows(plain, "eval")
