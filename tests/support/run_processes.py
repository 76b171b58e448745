"""The processes of a run, found and struck from outside."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from clearl.records.reader import Position, follow
from clearl.records.schema import Row


def children(pid: int) -> dict[str, int]:
    """Names and numbers of the workers and the evaluator of the run that `pid` leads."""
    found = {}
    for child in psutil.Process(pid).children(recursive=True):
        try:
            name = Path(f"/proc/{child.pid}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.startswith("clearl:"):
            # The kernel keeps 15 letters.
            found[name.removeprefix("clearl:").replace("evaluato", "evaluator")] = child.pid
    return found


def alive(pids: list[int]) -> list[int]:
    """Those that still run; a zombie does not."""
    running = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                running.append(pid)
        except psutil.NoSuchProcess:
            continue
    return running


def wait_until(process: BaseProcess, happened: Callable[[], object], *, within_s: float = 120.0) -> float:
    """Wait for something while the run goes on; the seconds it took."""
    begun = time.monotonic()
    while not happened():
        process.join(0.01)
        waited = time.monotonic() - begun
        assert process.is_alive(), f"the run ended with {process.exitcode} before it happened"
        assert waited < within_s, f"it did not happen within {within_s} s"
    return time.monotonic() - begun


class RowCounter:
    """Counts the rows of a metrics file as it grows, reading only what is new: a test must not slow the run down."""

    def __init__(self, out: Path) -> None:
        self._path, self._position, self._rows = out / "metrics.jsonl", Position(), list[Row]()

    def rows(self, kind: str) -> list[Row]:
        """The rows of one kind that have been written so far."""
        followed = follow(self._path, self._position)
        if followed.rewound:  # a resume has taken it back
            self._rows = []
        self._rows += followed.rows
        self._position = followed.position
        return [row for row in self._rows if row["kind"] == kind]


def shared_memory() -> set[str]:
    """Names of shared memory as Python and torch give them; a run of ours needs none. Others' programs have others."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("psm_", "torch_", "sem.mp-", "clearl"))}
