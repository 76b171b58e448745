"""Runs that are ended at a chosen moment: at a call that changes a file, or after a number of rows."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

CHANGES = ("fsync", "rename", "replace", "link", "mkdir")


def end_at_call(names: Iterable[str], moment: int, end: Callable[[], Any]) -> None:
    """Have this process call `end` in place of its `moment`-th call of these functions of `os`."""
    calls = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == moment:
                end()
            return real(*arguments, **options)

        return call

    for name in names:
        setattr(os, name, counted(getattr(os, name)))


def extend_and_end(run: Path, out: Path | None, following: Mapping[str, Any], moment: int) -> None:
    """Extend a run, in place or as a copy in `out`, in a process that ends at its `moment`-th change of a file."""
    arguments = [str(run), str(out or ""), json.dumps(following), str(moment)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, *arguments], check=False, timeout=200, env=environ)


class CrashError(Exception):
    """The run ends here."""


def crash(config: Any, out: Path, *, at: Callable[[Any], bool]) -> None:
    """Train until the first row of metrics for which `at` is true, and end there as a crash does."""
    from clearl.experiment import run

    def listen(row: Any) -> None:
        if at(row):
            raise CrashError

    try:
        run(config, out, console=False, listeners=[listen])
    except CrashError:
        return
    raise AssertionError(f"the run in {out} came to its end")


def row_number(number: int) -> Callable[[Any], bool]:
    """Return a condition that is true for the `number`-th row that it is asked about."""
    count = itertools.count(1)
    return lambda row: next(count) == number


def _main(run: str, out: str, following: str, moment: str) -> None:
    end_at_call(CHANGES, int(moment), lambda: os._exit(9))  # before the imports below, which bind functions of os
    from clearl.continuation import extend_run, fork_run, plan_extension

    extension = plan_extension(Path(run), json.loads(following))
    fork_run(extension, Path(out)) if out else extend_run(extension)


if __name__ == "__main__":
    _main(*sys.argv[1:])
