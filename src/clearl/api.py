"""The library: the same as the command line, as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clearl.config import load_yaml, resolve
from clearl.experiment import RunResult
from clearl.experiment import run as run_config
from clearl.plugins import import_asked, import_plugins, named_modules
from clearl.records.schema import Row


def run(
    *,
    out: str | Path,
    preset: str | None = None,
    file: str | Path | None = None,
    console: bool = False,
    trust: bool = False,
    arm: str | None = None,
    listeners: Sequence[Callable[[Row], None]] = (),
    **settings: Any,
) -> RunResult:
    """Train as `clearl run` does with the same flags, and return the run: `.metrics`, `.agent`, `.path`, `.status`.

    `arm` is the name under which reports show the run. Each of `listeners` is called with every row of metrics.
    Modules that `file` names are imported only if `settings` name them as well, or with `trust`.
    """
    asked = named_modules(settings)
    import_plugins(asked)
    if file is not None:
        import_asked(load_yaml(Path(file)), source=str(file), imports=asked, trust=trust)
    config = resolve(preset=preset, file=file, flags=settings)
    return run_config(config, Path(out), console=console, arm=arm, listeners=listeners)
