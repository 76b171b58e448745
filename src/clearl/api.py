"""The library: the same as the command line, as functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clearl.config import resolve
from clearl.experiment import RunResult
from clearl.experiment import run as run_config
from clearl.plugins import import_asked, named_modules


def run(
    *,
    out: str | Path,
    preset: str | None = None,
    file: str | Path | None = None,
    console: bool = False,
    trust: bool = False,
    **settings: Any,
) -> RunResult:
    """Train as `clearl run` does with the same flags, and return the run: `.metrics`, `.agent`, `.path`, `.status`.

    Modules that `file` names are imported only if `settings` name them as well, or with `trust`.
    """
    config = resolve(preset=preset, file=file, flags=settings)
    if file is not None:
        import_asked(vars(config), source=str(file), imports=named_modules(settings), trust=trust)
    return run_config(config, Path(out), console=console)
