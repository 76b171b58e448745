"""Trackio as a mirror: a local dashboard with the interface of Weights & Biases (`trackio show`)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from clearl.errors import MissingExtraError
from clearl.records.mirrors import Scalars, run_identity, run_settings
from clearl.records.schema import Row


class TrackioMirror:
    """A run in Trackio's project `clearl`, kept on this machine. A resume continues the same one."""

    label = "Trackio"

    @staticmethod
    def check() -> None:
        _trackio_module()

    def __init__(self, run_dir: Path) -> None:
        trackio = _trackio_module()
        identity = run_identity(run_dir, "trackio")
        self.wants_history, self._scalars = identity.is_new, Scalars()
        settings = run_settings(run_dir)
        self._run: Any = trackio.init(
            project="clearl", name=f"{Path(run_dir).name}-{identity.id}", group=settings["arm"], config=settings,
            resume="never" if identity.is_new else "must", embed=False,
        )  # fmt: skip

    def write(self, row: Row) -> None:
        values = self._scalars(row)
        if values:
            self._run.log(values, step=int(row["frames"]))

    def close(self) -> None:
        self._run.finish()


def _trackio_module() -> Any:
    try:
        return import_module("trackio")
    except ImportError:
        raise MissingExtraError("--trackio", "trackio", "pip install 'clearl[trackio]'") from None
