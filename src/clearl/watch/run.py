"""One watched run: its line in the list of runs, and everything that the page shows of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from clearl.errors import ClearlError
from clearl.records.reader import Position, follow, last_frames
from clearl.records.run_dir import CONFIG_FILE, META_FILE, read_meta
from clearl.records.schema import METRICS_FILE
from clearl.storage.files import read_plain
from clearl.watch.series import RunSeries

SILENT_S = 60.0
"""A run that says it is running and has written no row for longer may have been killed."""
VIDEOS = "videos"
_VIDEO_SUFFIXES = (".mp4", ".webm", ".gif")
_MOST_CONFIG_BYTES = 1 << 20
_MOST_ROWS = 10_000

Stamp = tuple[int, int, int]


@dataclass
class WatchedRun:
    """One run directory, and as much of it as has been read. What was read stays when the directory is deleted."""

    id: str
    name: str
    path: Path
    _series: RunSeries = field(default_factory=RunSeries)
    _position: Position | None = None
    _line: dict[str, Any] = field(default_factory=dict)
    _line_stamps: tuple[Stamp | None, Stamp | None] | None = None
    _shown: dict[str, Any] | None = None
    _lock: Lock = field(default_factory=Lock)

    def stamp(self) -> tuple[Any, ...]:
        """Changes whenever there is something new to show."""
        return self._stamps(), self._is_silent(self.summary()), _video(self.path)

    def state(self) -> tuple[Any, ...]:
        """Changes with what a reader notices in the list: the status, silence, and the progress, coarsely."""
        line = self.summary()
        frames, total = line["frames"], line["total_frames"]
        coarse = None if frames is None else frames * 100 // total if total else f"{frames:.1e}"
        return self.id, line["status"], line["silent"], coarse

    def summary(self) -> dict[str, Any]:
        """Return a line of the list of runs, from the meta data and the last row; reads only what has changed."""
        stamps = self._stamps()
        gone = stamps[1] is None and self.gone
        if stamps != self._line_stamps and not (gone and self._line):
            self._line, self._line_stamps = self._read_line(), stamps
        line = {**self._line, "status": "deleted"} if gone else self._line
        return {"id": self.id, "name": self.name, **line, "silent": self._is_silent(line)}

    def snapshot(self) -> dict[str, Any]:
        """Collect everything the page shows of this run; reads only the rows that are new."""
        with self._lock:
            if self._shown is None or not self.gone:
                self._shown = self._read()
            return {**self.summary(), **self._shown, "silent_s": self._silent_s()}

    def video_file(self) -> Path | None:
        """Return the video that the page shows."""
        video = _video(self.path)
        return video and self.path / VIDEOS / video.name

    @property
    def gone(self) -> bool:
        """True if the directory was deleted while it was watched."""
        try:
            (self.path / META_FILE).stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # it is there, and may not be read
            return False
        return False

    def _read_line(self) -> dict[str, Any]:
        try:
            meta = read_meta(self.path)
        except (OSError, ClearlError):
            meta = {"status": "unreadable"}
        shown = {key: meta.get(key) for key in ("status", "method", "suite", "protocol", "seed", "arm")}
        frames = last_frames(self.path / METRICS_FILE)
        # Deleted files go one by one: the line keeps what the metrics said.
        return {"frames": self._line.get("frames") if frames is None else frames, **shown, **_plan(meta)}

    def _read(self) -> dict[str, Any]:
        try:
            problem = self._read_rows()
        except OSError as error:
            problem = f"{METRICS_FILE} cannot be read: {error.strerror}"
        video = _video(self.path)
        return {
            **self._series.to_json(), "problem": problem, "config": _config(self.path),
            "video": video and video.name, "video_stamp": video and video.stamp,
        }  # fmt: skip

    def _read_rows(self) -> str:
        """Take in the rows that are new; return why they cannot be read, if so."""
        followed = follow(self.path / METRICS_FILE, self._position, most_rows=_MOST_ROWS)
        if followed.position == Position():  # no row yet, or the file is being deleted or replaced
            return followed.problem
        if followed.rewound:  # a resume dropped the rows after its checkpoint, or the run was replaced
            self._series = RunSeries()
        self._position = followed.position
        for row in followed.rows:
            self._series.update(row)
        return followed.problem

    def _stamps(self) -> tuple[Stamp | None, Stamp | None]:
        return _stamp(self.path / METRICS_FILE), _stamp(self.path / META_FILE)

    def _silent_s(self) -> float:
        """Return the seconds since the last row, or since the run began if there is none."""
        written = next((stamp for stamp in self._stamps() if stamp is not None), None)
        return 0.0 if written is None else max(0.0, time.time() - written[0] / 1e9)

    def _is_silent(self, line: dict[str, Any]) -> bool:
        return line["status"] == "running" and self._silent_s() > SILENT_S


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


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
        return read_plain(path / CONFIG_FILE, cap_nbytes=_MOST_CONFIG_BYTES).decode(errors="replace")
    except ClearlError:
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
