"""The library: the same as the command line, as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clearl.config import load_yaml, resolve
from clearl.continuation import go_on
from clearl.errors import ConfigError
from clearl.experiment import RunResult
from clearl.experiment import run as run_config
from clearl.plugins import import_asked, import_plugins, named_modules
from clearl.records.schema import Row
from clearl.tasks.makers import check_reachable, named_tasks


def run(
    *,
    out: str | Path,
    preset: str | None = None,
    file: str | Path | None = None,
    console: bool = False,
    trust: bool = False,
    arm: str | None = None,
    listeners: Sequence[Callable[[Row], None]] = (),
    resume_from: str | Path | None = None,
    **settings: Any,
) -> RunResult:
    """Train like `clearl run` with the same settings, and return the run: `.metrics`, `.agent`, `.path`, `.status`.

    `tasks` may map names to functions that make an environment, or to Gymnasium specs.
    `arm` is the name under which reports show the run. Each of `listeners` is called with every row of metrics.
    With `resume_from`, a copy of that run continues in `out` on the next tasks (`tasks=`, `frames_per_visit=`, ...),
    with its agent, its optimiser and its replay buffer. `result.extend(tasks=...)` does the same in place.
    Modules that `file` names are imported only if `settings` names them too, or with `trust`.
    """
    settings, unreachable = named_tasks(settings)
    asked = named_modules(settings)
    import_plugins(asked)
    if resume_from is not None:
        if preset is not None or file is not None:
            raise ConfigError("resume_from takes the settings of that run and keywords; no preset or file")
        config = go_on(Path(resume_from), Path(out), settings)
        check_reachable(unreachable, config.runtime)
        return run_config(config, Path(out), console=console, arm=arm, listeners=listeners)
    if file is not None:
        import_asked(load_yaml(Path(file)), source=str(file), imports=asked, trust=trust)
    config = resolve(preset=preset, file=file, flags=settings)
    check_reachable(unreachable, config.runtime)
    return run_config(config, Path(out), console=console, arm=arm, listeners=listeners)
