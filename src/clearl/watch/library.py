"""The runs below some directories: found, named, and followed as they grow."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from clearl.errors import ClearlError
from clearl.records.reader import Position, follow, last_frames
from clearl.records.run_dir import CONFIG_FILE, META_FILE, holds_run, read_meta
from clearl.records.schema import METRICS_FILE
from clearl.watch.series import RunSeries

_MOST_RUNS = 2_000
_MOST_DEPTH = 6
VIDEOS = "videos"
_VIDEO_SUFFIXES = (".mp4", ".webm", ".gif")
_MOST_CONFIG_BYTES = 200_000
_MOST_ROWS = 10_000


@dataclass
class WatchedRun:
    """One run directory, and as much of it as has been read."""

    id: str
    name: str
    path: Path
    _series: RunSeries = field(default_factory=RunSeries)
    _position: Position | None = None
    _lock: Lock = field(default_factory=Lock)

    def stamp(self) -> tuple[Any, ...]:
        """Changes whenever there is something new to show."""
        return _stamp(self.path / METRICS_FILE), self.meta_stamp(), _video(self.path)

    def meta_stamp(self) -> tuple[int, int, int] | None:
        """Changes with the state of the run, as the list of runs shows it."""
        return _stamp(self.path / META_FILE)

    def summary(self) -> dict[str, Any]:
        """Return a line of the list of runs: from the meta data and the end of the metrics, without reading it all."""
        meta = _meta(self.path)
        shown = {key: meta.get(key) for key in ("status", "method", "suite", "protocol", "seed", "arm")}
        return {"id": self.id, "name": self.name, "frames": last_frames(self.path / METRICS_FILE), **shown, **_plan(meta)}

    def snapshot(self) -> dict[str, Any]:
        """Collect everything the page shows of this run; reads only the rows that are new."""
        with self._lock:
            followed = follow(self.path / METRICS_FILE, self._position, most_rows=_MOST_ROWS)
            if followed.rewound:  # a resume dropped the rows after its checkpoint, or the run was replaced
                self._series = RunSeries()
            self._position = followed.position
            for row in followed.rows:
                self._series.update(row)
            content = self._series.to_json()
        summary = self.summary()
        video, written = _video(self.path), _stamp(self.path / METRICS_FILE)
        return {
            **summary, **content, "config": _config(self.path), "gone": self.gone,
            "video": video and video.name, "video_stamp": video and video.stamp,
            "silent_s": max(0.0, time.time() - written[0] / 1e9) if written else None,
        }  # fmt: skip

    def video_file(self) -> Path | None:
        """Return the video that the page shows."""
        video = _video(self.path)
        return video and self.path / VIDEOS / video.name

    @property
    def gone(self) -> bool:
        """True if the directory was deleted while it was watched."""
        return not (self.path / META_FILE).exists()


class Library:
    """The runs below `roots`; looked for anew at every `runs()`, since new ones start while the page is open."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = [root.resolve() for root in roots]
        self._known: dict[str, WatchedRun] = {}
        self._lock = Lock()

    def runs(self) -> list[WatchedRun]:
        """Return all runs, those that were deleted while watched included, in the order of their names."""
        with self._lock:
            for root in self.roots:
                for path in find_runs(root):
                    key = _id(path)
                    if key not in self._known:
                        self._known[key] = WatchedRun(key, _name(path, self.roots), path)
            return sorted(self._known.values(), key=lambda run: run.name)

    def get(self, key: str) -> WatchedRun | None:
        """Return the run of that id."""
        return self._known.get(key) or next((run for run in self.runs() if run.id == key), None)


def find_runs(root: Path) -> Iterator[Path]:
    """Find run directories at or below `root`, links not followed, down to a few levels and at most some thousands."""
    found = 0
    for directory, below, _ in os.walk(root, followlinks=False):
        path = Path(directory)
        depth = len(path.relative_to(root).parts)
        below[:] = [] if depth >= _MOST_DEPTH else sorted(name for name in below if not name.startswith("."))
        if holds_run(path):
            yield path
            found += 1
            # What a run keeps inside is not searched, except the parts of a `separate` run.
            below[:] = [
                name for name in below if name not in ("checkpoints", "replay", "videos", "switches", "tensorboard")
            ]
        if found >= _MOST_RUNS:
            return


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


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _meta(path: Path) -> dict[str, Any]:
    try:
        return read_meta(path)
    except (OSError, ClearlError):
        return {"status": "unreadable"}


def _plan(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the planned tasks and length; a plan that repeats `forever` has no length."""
    plan = meta.get("plan")
    plan = plan if isinstance(plan, dict) else {}
    forever, segments, evaluate = plan.get("forever") is True, plan.get("segments"), plan.get("evaluate")
    known = segments if isinstance(segments, list) else []
    lengths = [segment.get("frames") for segment in known if isinstance(segment, dict)]
    frames = [length for length in lengths if isinstance(length, int)]
    return {
        "total_frames": sum(frames) if frames and len(frames) == len(lengths) and not forever else None,
        "forever": forever,
        "tasks": [str(task) for task in evaluate] if isinstance(evaluate, list) else [],
    }


def _config(path: Path) -> str:
    try:
        with open(path / CONFIG_FILE, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_CONFIG_BYTES)
    except OSError:
        return ""


class Video(NamedTuple):
    """A file in the folder of videos, and when it was written."""

    name: str
    stamp: str
    """As text: its nanoseconds are more than JavaScript's numbers hold."""


def _video(path: Path) -> Video | None:
    """Return the newest video of a run."""
    try:
        files = [file for file in (path / VIDEOS).iterdir() if file.suffix in _VIDEO_SUFFIXES and file.is_file()]
        written = {file.name: file.stat().st_mtime_ns for file in files}
    except OSError:
        return None
    newest = max(written, key=lambda name: written[name], default=None)
    return None if newest is None else Video(newest, str(written[newest]))
