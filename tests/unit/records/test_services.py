"""The packages of W&B and Trackio themselves, without a network: what they keep is what the rows say."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from clearl.records import MetricsWriter, RunDir, eval_row, train_row

SESSION = """
import os, sys
from pathlib import Path
from clearl.records import eval_row
from clearl.records.mirrors import check_mirrors, open_mirrors

service, run_dir, frames = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
check_mirrors([service])
(mirror,) = open_mirrors(run_dir, [service])
if not frames:
    os._exit(9)
mirror.write(eval_row(task="b", frames=frames, mean_return=frames / 4, episodes=1, updates=3, wall_s=3.0))
mirror.close()
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    RunDir.create(tmp_path / "run", config_text="", meta={"seed": 1, "arm": "clear", "method": "clear"})
    with MetricsWriter(tmp_path / "run") as writer:
        writer.write(eval_row(task="a", frames=10, mean_return=1.5, episodes=4, updates=1, wall_s=1.0, std=0.5))
        writer.write(
            train_row(tasks=["a"], frames=20, updates=2, fps=9.0, loss={"value": 3.0}, lag_updates=1.0, replay={},
                      wall_s=2.0)
        )  # fmt: skip
    return tmp_path / "run"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No account, no network, and nothing in the home directory."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "TRACKIO_", "HF_"))}
    folders = {
        name: str(tmp_path / name.lower())
        for name in ("HOME", "HF_HOME", "TRACKIO_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
    }
    return {**own, **folders, "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}


def _session(service: str, run_dir: Path, frames: int, environment: dict[str, str]) -> str:
    """Train on for one evaluation in a process of its own; 0 frames: be killed at once. Return its messages."""
    command = [sys.executable, "-c", SESSION, service, str(run_dir), str(frames)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == (0 if frames else 9), done.stderr
    assert "is switched off" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def _trackio_rows(environment: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The rows that Trackio has stored, by run."""
    program = (
        "import json, trackio\n"
        "from trackio.sqlite_storage import SQLiteStorage as storage\n"
        "runs = trackio.Api().runs('clearl')\n"
        "print(json.dumps([[run.name, storage.get_logs('clearl', run.name, run_id=run.id)] for run in runs]))\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_trackio_goes_on_with_a_run_that_was_moved(run_dir: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("trackio")
    _session("trackio", run_dir, 30, environment)
    _session("trackio", run_dir.rename(run_dir.with_name("moved")), 40, environment)
    ((name, rows),) = _trackio_rows(environment).items()
    assert name.startswith("run-")
    assert [row["step"] for row in rows] == [10, 20, 30, 40]
    assert rows[0]["eval/return/a"] == 1.5 and rows[1]["train/loss/value"] == 3.0
    assert [row["eval/return/b"] for row in rows[2:]] == [7.5, 10.0]


def test_trackio_gets_all_rows_of_a_run_that_was_killed_at_once(run_dir: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("trackio")
    _session("trackio", run_dir, 0, environment)
    _session("trackio", run_dir, 30, environment)
    ((_, rows),) = _trackio_rows(environment).items()
    assert [row["step"] for row in rows] == [10, 20, 30]


def _wandb_records(file: Path) -> Iterator[Any]:
    """The records of a `.wandb` file: a log in LevelDB's format, in blocks of 32 KB, of messages of protobuf."""
    record = import_module("wandb.proto.wandb_internal_pb2").Record
    data, at, message = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        rest = 2**15 - at % 2**15
        length, kind = struct.unpack_from("<HB", data, at + 4) if rest >= 7 else (0, 0)
        if not kind:
            at += rest
            continue
        message += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record.FromString(message)
            message = b""


def test_wandb_keeps_each_session_of_a_run_below_its_directory(run_dir: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("wandb")
    _session("wandb", run_dir, 30, environment)
    moved = run_dir.rename(run_dir.with_name("moved"))
    _session("wandb", moved, 40, environment)
    files = sorted((moved / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda file: file.stat().st_mtime_ns)
    identity = (moved / "mirrors" / "wandb.txt").read_text()
    assert [file.name for file in files] == [f"run-{identity}.wandb"] * 2
    told, settings = [], []
    for file in files:
        for record in _wandb_records(file):
            if record.HasField("history"):
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                told.append({name: json.loads(value) for name, value in items.items()})
            elif record.HasField("run"):
                settings.append((record.run.project, record.run.run_id, record.run.run_group, record.run.display_name))
    assert [row["frames"] for row in told] == [10, 20, 30, 40]
    assert told[0]["eval/return/a"] == 1.5 and told[1]["train/loss/value"] == 3.0 and told[3]["eval/return/b"] == 10.0
    assert settings == [("clearl", identity, "clear", name) for name in ("run", "moved")]


@pytest.mark.parametrize(
    ("key", "said"), [({}, "no API key of Weights & Biases is set"), ({"WANDB_API_KEY": "x"}, "WANDB_API_KEY invalid")]
)
def test_wandb_without_a_key_is_refused_without_a_question(
    key: dict[str, str], said: str, environment: dict[str, str]
) -> None:
    pytest.importorskip("wandb")
    program = "from clearl.records.mirrors import check_mirrors\ncheck_mirrors(['wandb'])\n"
    online = {**environment, **key, "WANDB_MODE": "online"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=online, capture_output=True, text=True, timeout=120, input=""
    )
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"clearl.errors.ConfigError: --wandb: {said}") and "run `wandb login`" in told
    assert "deprecated" not in done.stderr
