"""The live view of a run: what is trained, how every task stands, how fast it goes, how the workers are."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from clearl.records.schema import Row

REFRESH_EVERY_S = 0.25
PLAIN_EVERY_S = 10.0
_HISTORY = 24
_BARS = "▁▂▃▄▅▆▇█"


@dataclass
class Progress:
    """What the rows so far say about the run; knows nothing of terminals."""

    tasks: tuple[str, ...]
    total_frames: int | None
    frames: int = 0
    fps: float | None = None
    returns: dict[str, deque[float]] = field(default_factory=dict)
    training: tuple[str, ...] = ()
    faults: int = 0
    health: str = ""
    _segments: dict[int, Row] = field(default_factory=dict)

    def update(self, row: Row) -> None:
        """Take in one metrics row."""
        kind = row["kind"]
        if kind == "segment":
            self._segments[row.get("index", len(self._segments))] = row
        elif kind == "eval" and row["return"] is not None:
            self.frames = max(self.frames, int(row["frames"]))
            self.returns.setdefault(row["task"], deque(maxlen=_HISTORY)).append(float(row["return"]))
        elif kind == "fault":
            self.faults += 1
        elif kind == "train":
            self.frames, self.training = max(self.frames, int(row["frames"])), tuple(row["tasks"])
            if row["fps"]:
                # Smoothed, so that the time left does not jump with every row.
                self.fps = row["fps"] if self.fps is None else 0.8 * self.fps + 0.2 * row["fps"]

    @property
    def segment(self) -> tuple[int, int] | None:
        """Which segment is being trained (from 1), and of how many."""
        if not self._segments:
            return None
        begun = [row for row in self._segments.values() if (row["start_frames"] or 0) <= self.frames]
        known = [row for row in begun if row["start_frames"] is not None]
        return max(1, len(known)), len(self._segments)

    @property
    def seconds_left(self) -> float | None:
        """At the present speed; None while it is not known."""
        if self.total_frames is None or not self.fps:
            return None
        return max(0, self.total_frames - self.frames) / self.fps

    @property
    def all_tasks(self) -> tuple[str, ...]:
        return (*self.tasks, *(task for task in self.returns if task not in self.tasks))


class Console:
    """Shows a run while it lasts: a live panel in a terminal, a plain line every 10 s elsewhere.

    Drawing happens in `update` and `health`, at most four times a second, so that no thread competes with training.
    """

    def __init__(
        self,
        *,
        title: str,
        tasks: Sequence[str],
        total_frames: int | None,
        out: RichConsole | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title = title
        self.progress = Progress(tuple(tasks), total_frames)
        self._out = out or RichConsole()
        self._clock = clock
        self._drawn_at: float | None = None
        self._live: Live | None = None

    def update(self, row: Row) -> None:
        """Take in a metrics row, and draw if it is time."""
        self.progress.update(row)
        self._draw()

    def health(self, text: str) -> None:
        """Say how the workers are, for instance "2 workers, 1 restart"."""
        self.progress.health = text
        self._draw()

    def open(self) -> None:
        """Take the terminal, if there is one."""
        if self._out.is_terminal:
            self._live = Live(console=self._out, auto_refresh=False, transient=False)

    def close(self) -> None:
        """Draw the last state and give the terminal back."""
        if self._drawn_at is not None:  # a run that never began leaves nothing but its error
            self._draw(now=True)
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, *, now: bool = False) -> None:
        every = PLAIN_EVERY_S if self._live is None else REFRESH_EVERY_S
        time_s = self._clock()
        if not now and self._drawn_at is not None and time_s - self._drawn_at < every:
            return
        self._drawn_at = time_s
        if self._live is not None:
            self._live.start()
            self._live.update(panel(self.title, self.progress), refresh=True)
        else:
            self._out.print(plain_line(self.title, self.progress), soft_wrap=True, highlight=False, markup=False)


def panel(title: str, progress: Progress) -> RenderableType:
    """The live view, as one framed block."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    for task in progress.all_tasks:
        trained = task in progress.training
        history = progress.returns.get(task, ())
        table.add_row(
            Text(f"{'▶' if trained else ' '} {task}", style="bold" if trained else ""),
            Text(_number(history[-1]) if history else "-", style="bold" if trained else ""),
            Text(sparkline(history), style="cyan" if trained else "dim"),
        )
    parts: list[RenderableType] = [table, Text()]
    if progress.total_frames:
        bar = Table.grid(expand=True)  # a bar alone ends without a new line where there are no colours
        bar.add_row(ProgressBar(total=progress.total_frames, completed=progress.frames))
        parts.append(bar)
    parts.append(Text(_status(progress)))
    if health := _health(progress):
        parts.append(Text(health, style="yellow" if progress.faults else "dim"))
    return Panel(Group(*parts), title=Text(title, style="bold"), title_align="left", border_style="dim")


def plain_line(title: str, progress: Progress) -> str:
    """The same in one line, for logs."""
    returns = "  ".join(
        f"{'*' if task in progress.training else ''}{task} {_number(history[-1])}"
        for task in progress.all_tasks
        if (history := progress.returns.get(task))
    )
    return "  ".join(part for part in (f"{title}:", _status(progress), returns, _health(progress)) if part)


def sparkline(values: Sequence[float] | deque[float]) -> str:
    """The last values as tiny bars, scaled from 0 (or the least, if below) to the greatest."""
    if not values:
        return ""
    low, high = min(0.0, *values), max(values)
    if high <= low:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(int((value - low) / (high - low) * len(_BARS)), len(_BARS) - 1)] for value in values)


def _status(progress: Progress) -> str:
    parts = []
    if progress.segment is not None:
        parts.append("segment {} of {}".format(*progress.segment))
    of = f" of {progress.total_frames:,}" if progress.total_frames else ""
    parts.append(f"{progress.frames:,}{of} frames")
    if progress.fps:
        parts.append(f"{_compact(progress.fps)} frames/s")
    if progress.seconds_left is not None:
        parts.append(f"{_duration(progress.seconds_left)} left")
    return ", ".join(parts)


def _health(progress: Progress) -> str:
    faults = f"{progress.faults} fault{'s' if progress.faults != 1 else ''} survived" if progress.faults else ""
    return ", ".join(part for part in (progress.health, faults) if part)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _compact(value: float) -> str:
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
