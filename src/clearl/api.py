"""The library: the same as the command line, as functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clearl.config import resolve
from clearl.experiment import RunResult
from clearl.experiment import run as run_config


def run(
    *,
    out: str | Path,
    preset: str | None = None,
    file: str | Path | None = None,
    console: bool = False,
    **settings: Any,
) -> RunResult:
    """Train as `clearl run` does with the same flags, and return the run: `.metrics`, `.agent`, `.path`, `.status`."""
    return run_config(resolve(preset=preset, file=file, flags=settings), Path(out), console=console)
