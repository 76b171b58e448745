"""Trackio as a mirror: a local dashboard with the interface of Weights & Biases (`trackio show`)."""

from __future__ import annotations

from functools import partial
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
        settings, self._scalars = run_settings(run_dir), Scalars()
        name = run_identity(run_dir, "trackio", prefix=f"{Path(run_dir).absolute().name}-").id
        init = partial(
            _trackio_module().init, project="clearl", name=name, group=settings["arm"], config=settings, embed=False
        )
        try:
            self._run: Any = init(resume="must")
            self.wants_history = False
        except ValueError:  # new, killed before Trackio stored its first rows, or Trackio's folder is another one
            self._run = init(resume="never")
            self.wants_history = True

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
