"""The mirror to TensorBoard: rows as scalars at their true time, and the settings of the run as hyperparameters."""

from __future__ import annotations

import contextlib
import shutil
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from clearl.errors import MissingExtraError
from clearl.records.mirrors import Scalars
from clearl.records.run_dir import CONFIG_FILE, read_meta
from clearl.records.schema import Row

TENSORBOARD_DIR = "tensorboard"


class TensorBoardMirror:
    """Event files in `RUN/tensorboard`, written by TensorBoard's own writer. Opening it starts them afresh."""

    label = "TensorBoard"

    @staticmethod
    def check() -> None:
        _modules()

    def __init__(self, run_dir: Path) -> None:
        event_pb2, summary_pb2, writer, hparams = _modules()
        directory = Path(run_dir) / TENSORBOARD_DIR
        shutil.rmtree(directory, ignore_errors=True)
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer, self._scalars = writer.EventFileWriter(str(directory)), Scalars()
        self._began_unix_s = began_unix_s(run_dir)
        self._add(
            hparams.hparams_pb(hyperparameters(run_dir), trial_id=Path(run_dir).absolute().name), step=0, wall_s=0.0
        )

    def write(self, row: Row) -> None:
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in self._scalars(row).items()]
        if values:
            self._add(self._summary(value=values), step=int(row["frames"]), wall_s=float(row.get("wall_s", 0.0)))

    def close(self) -> None:
        self._writer.close()

    def _add(self, summary: Any, *, step: int, wall_s: float) -> None:
        event = self._event(step=step, wall_time=self._began_unix_s + wall_s)
        event.summary.CopyFrom(summary)
        self._writer.add_event(event)


def began_unix_s(run_dir: Path) -> float:
    """Return the time at which the run began; if it is not recorded, the time at which its settings were written."""
    began = read_meta(run_dir).get("began_unix_s")
    if isinstance(began, (int, float)):
        return float(began)
    with contextlib.suppress(OSError):
        return (Path(run_dir) / CONFIG_FILE).stat().st_mtime
    return time.time()


def hyperparameters(run_dir: Path) -> dict[str, bool | float | str]:
    """Return the settings of a run, lists as text, none left out."""
    settings = yaml.safe_load((Path(run_dir) / CONFIG_FILE).read_text(encoding="utf-8")) or {}
    return {name: value if isinstance(value, (bool, int, float)) else _text(value) for name, value in settings.items()}


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _modules() -> tuple[Any, Any, Any, Any]:
    try:
        return (
            import_module("tensorboard.compat.proto.event_pb2"),
            import_module("tensorboard.compat.proto.summary_pb2"),
            import_module("tensorboard.summary.writer.event_file_writer"),
            import_module("tensorboard.plugins.hparams.summary_v2"),
        )
    except ImportError:
        raise MissingExtraError("--tensorboard", "tensorboard", "pip install 'clearl[tensorboard]'") from None
