"""The runs below some directories, searched for in the background as new ones start."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from clearl.errors import RunDirectoryError
from clearl.records.run_dir import holds_run
from clearl.watch.run import WatchedRun

_MOST_RUNS = 2_000
_MOST_DIRECTORIES = 100_000
_MOST_DEPTH = 6
_INSIDE_A_RUN = ("checkpoints", "replay", "videos", "switches", "tensorboard", "wandb")
_LEAST_REST_S, _MOST_REST_S, _REST_FACTOR = 0.25, 60.0, 20
_FIRST_PATIENCE_S, _PATIENCE_S = 2.0, 0.1


class Repeated:
    """A job that runs in the background while clients ask for its result, and then rests 20 times as long as it took.

    It runs once at a time, however many clients ask: large trees and slow file systems take only a share of a core.
    """

    def __init__(self, job: Callable[[], None], clock: Callable[[], float]) -> None:
        self._job, self._clock = job, clock
        self._thread: Thread | None = None
        self._lock = Lock()
        self._due = clock()
        self.is_complete = False
        """True once the job has run to its end."""

    def ask(self) -> None:
        """Start the job if it is due, and wait for it a moment."""
        with self._lock:
            if self._thread is None and self._clock() >= self._due:
                self._thread = Thread(target=self._run, daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(_PATIENCE_S if self.is_complete else _FIRST_PATIENCE_S)

    def _run(self) -> None:
        began = self._clock()
        try:
            self._job()
            self.is_complete = True
        finally:
            ended = self._clock()
            with self._lock:
                self._due = ended + min(max(_LEAST_REST_S, _REST_FACTOR * (ended - began)), _MOST_REST_S)
                self._thread = None


class Library:
    """The runs below `roots`; new ones appear while the page is open."""

    def __init__(self, roots: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self.roots = [root.resolve() for root in roots]
        self._known: dict[str, WatchedRun] = {}
        self._notes: list[str] = []
        self._state: list[tuple[Any, ...]] = []
        self._lock = Lock()
        self._search = Repeated(self._find, clock)
        self._survey = Repeated(self._look, clock)

    def runs(self) -> list[WatchedRun]:
        """Return all runs found so far, those that were deleted while watched included, in the order of their names."""
        self._search.ask()
        with self._lock:
            return sorted(self._known.values(), key=lambda run: run.name)

    def get(self, key: str) -> WatchedRun | None:
        """Return the run of that id."""
        return self._known.get(key) or next((run for run in self.runs() if run.id == key), None)

    def state(self) -> tuple[Any, ...]:
        """Changes with what a reader notices in the list of runs."""
        self._search.ask()
        self._survey.ask()
        return *self._state, *self.notes()

    def notes(self) -> list[str]:
        """Return sentences about the runs that the list may lack."""
        return self._notes if self._search.is_complete else ["still searching the directories for runs"]

    def _find(self) -> None:
        notes: list[str] = []
        for root in self.roots:
            for path in find_runs(root, notes):
                key = _id(path)
                if key not in self._known:
                    with self._lock:
                        self._known[key] = WatchedRun(key, _name(path, self.roots), path)
        self._notes = notes

    def _look(self) -> None:
        with self._lock:
            known = list(self._known.values())
        self._state = [run.state() for run in known]


def find_runs(root: Path, notes: list[str]) -> Iterator[Path]:
    """Find run directories at or below `root`, links not followed, down to a few levels.

    Where a search ends early, `notes` gets a sentence about it.
    """
    found, walk = 0, os.walk(root, onerror=lambda error: _note_root(root, error, notes), followlinks=False)
    for searched, (directory, below, _) in enumerate(walk, start=1):
        path = Path(directory)
        depth = len(path.relative_to(root).parts)
        below[:] = [] if depth >= _MOST_DEPTH else sorted(name for name in below if not name.startswith("."))
        if _holds_run(path):
            yield path
            found += 1
            # What a run keeps inside is not searched, except the parts of a `separate` run.
            below[:] = [name for name in below if name not in _INSIDE_A_RUN]
        for count, most, what in ((found, _MOST_RUNS, "runs"), (searched, _MOST_DIRECTORIES, "directories")):
            if count >= most:
                notes.append(
                    f"only the first {most:,} {what} below {root} are searched: watch a directory further down"
                )
                return


def _note_root(root: Path, error: OSError, notes: list[str]) -> None:
    if error.filename == str(root):
        notes.append(f"{root} cannot be read: {error.strerror}")


def _holds_run(path: Path) -> bool:
    """Return whether there is a run; what may not be entered holds none."""
    try:
        return holds_run(path)
    except RunDirectoryError:
        return False


def _id(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def _name(path: Path, roots: Sequence[Path]) -> str:
    """Name a run by its path relative to the first root that holds it."""
    for root in roots:
        if path == root:
            return path.name
        if root in path.parents:
            return str(path.relative_to(root.parent if len(roots) > 1 else root))
    return path.name
