"""The live view of a run: the tasks in training, every task's score, the speed, the health of workers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from clearl.records.names import clean_name
from clearl.records.schema import Row
from clearl.records.view import RunView

REFRESH_EVERY_S = 0.25
PLAIN_EVERY_S = 10.0
_BARS = "▁▂▃▄▅▆▇█"
_ECHO_LETTERS = 2
"""Columns left free at the right: the `^C` that a terminal echoes would wrap otherwise, and leave a stray line."""


class Console:
    """Shows a run during training: a live panel in a terminal, a plain line every 10 s elsewhere.

    Drawing happens in `update`, at most four times a second, so that no thread competes with training.
    """

    def __init__(
        self,
        *,
        title: str,
        tasks: Sequence[str],
        total_frames: int | None,
        forever: bool = False,
        out: RichConsole | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title = clean_name(title)
        self.view = RunView(tuple(tasks), total_frames, forever)
        self._out = out or RichConsole()
        self._clock = clock
        self._drawn_at: float | None = None
        self._drawn_width: int | None = None
        self._live: Live | None = None

    def update(self, row: Row) -> None:
        """Take in a metrics row, and draw if it is time."""
        self.view.update(row)
        if row["kind"] != "segment" or self._drawn_at is not None:  # the plan is several rows: draw once all are in
            self._draw()

    def open(self) -> None:
        """Take the terminal, if there is one."""
        if self._out.is_terminal:
            self._live = self._new_live()

    def say(self, line: str) -> None:
        """Print a line; a terminal gets it broken between words, a log whole."""
        self._out.print(line, soft_wrap=not self._out.is_terminal, highlight=False, markup=False)

    def close(self) -> None:
        """Draw the last state and give the terminal back."""
        if self._drawn_at is not None:  # a run that never began shows only its error
            self._draw(now=True)
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self.view.skipped_evaluations:
            self.say(_skipped(self.view))

    def _draw(self, *, now: bool = False) -> None:
        every = PLAIN_EVERY_S if self._live is None else REFRESH_EVERY_S
        time_s = self._clock()
        if not now and self._drawn_at is not None and time_s - self._drawn_at < every:
            return
        self._drawn_at = time_s
        if self._live is not None:
            live = self._live = self._fitted(self._live)
            live.start()
            live.update(panel(self.title, self.view, self._out.width - _ECHO_LETTERS), refresh=True)
        else:
            self._out.print(plain_line(self.title, self.view), soft_wrap=True, highlight=False, markup=False)

    def _fitted(self, live: Live) -> Live:
        """Clear the screen if the width has changed: the terminal has wrapped the lines drawn before."""
        before, self._drawn_width = self._drawn_width, self._out.width
        if before in (None, self._drawn_width):
            return live
        live.stop()
        self._out.clear()
        return self._new_live()

    def _new_live(self) -> Live:
        return Live(console=self._out, auto_refresh=False, transient=False)


def panel(title: str, view: RunView, width: int) -> RenderableType:
    """Return the live view, as one framed block of `width` columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for task in view.all_tasks:
        trained = task in view.training
        history = view.returns.get(task, ())
        table.add_row(
            Text(f"{'▶' if trained else ' '} {clean_name(task)}", style="bold" if trained else ""),
            Text(_number(history[-1]) if history else "-", style="bold" if trained else ""),
            Text(sparkline(history), style="cyan" if trained else "dim"),
            Text(_training(view, task), style="dim"),
        )
    # The status comes first: a terminal with few lines cuts off the end.
    parts: list[RenderableType] = [Text(_status(view))]
    if view.total_frames:
        bar = Table.grid(expand=True)  # without colours, a bar outside a table has no line break at its end
        bar.add_row(ProgressBar(total=view.total_frames, completed=view.frames))
        parts.append(bar)
    parts += [Text(), table]
    if diagnostics := _diagnostics(view):
        parts.append(Text(diagnostics, style="dim"))
    if busy := _seconds(view):
        parts.append(Text(busy, style="dim"))
    if health := _health(view):
        parts.append(Text(health, style="yellow" if view.faults else "dim"))
    head = Text(title, style="bold")
    return Panel(Group(*parts), title=head, title_align="left", border_style="dim", width=width)


def plain_line(title: str, view: RunView) -> str:
    """Return the live view as one line, for logs."""
    returns = "  ".join(
        f"{'*' if task in view.training else ''}{clean_name(task)} {_number(history[-1])}"
        for task in view.all_tasks
        if (history := view.returns.get(task))
    )
    return "  ".join(part for part in (f"{title}:", _status(view), returns, _health(view)) if part)


def sparkline(values: Sequence[float] | deque[float]) -> str:
    """Return the last values as tiny bars, scaled from 0 (or the least, if below) to the greatest."""
    if not values:
        return ""
    low, high = min(0.0, *values), max(values)
    if high <= low:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(int((value - low) / (high - low) * len(_BARS)), len(_BARS) - 1)] for value in values)


def _status(view: RunView) -> str:
    parts = []
    if view.segment is not None:
        number, count = view.segment
        parts.append(f"segment {number}" if count is None else f"segment {number} of {count}")
    of = f" of {view.total_frames:,}" if view.total_frames else ""
    parts.append(f"{view.frames:,}{of} frames")
    if view.fps:
        parts.append(f"{_compact(view.fps)} frames/s")
    if view.seconds_left is not None:
        parts.append(f"{_duration(view.seconds_left)} left")
    if view.resumed_frames is not None:
        parts.append(f"resumed at frame {view.resumed_frames:,}")
    return ", ".join(parts)


def _health(view: RunView) -> str:
    faults = f"{view.faults} fault{'s' if view.faults != 1 else ''} survived" if view.faults else ""
    return ", ".join(part for part in (view.health_line, faults) if part)


_DIAGNOSED = {"entropy": "entropy", "clipped_share": "clipped ratios", "kl": "KL", "grad_norm": "gradient"}


def _diagnostics(view: RunView) -> str:
    """Return some figures of the last diagnosis: "entropy 1.20 new, 0.90 replay; KL 0.01 new, 0.60 replay"."""
    halves = {half: view.diagnostics[half] for half in ("new", "replay") if view.diagnostics.get(half)}
    parts = []
    for key, words in _DIAGNOSED.items():
        values = [(half, found[key]) for half, found in halves.items() if found.get(key) is not None]
        shown = [f"{_diagnosed(key, value)} {half}" for half, value in values if value is not None]
        if shown:
            parts.append(f"{words} {', '.join(shown)}")
    return "; ".join(parts)


def _diagnosed(key: str, value: float) -> str:
    return f"{value:.0%}" if key.endswith("_share") else _number(value)


def _training(view: RunView, task: str) -> str:
    """Format the return of the task's training episodes and its share of the slots, where rows have them."""
    if task not in view.training:
        return ""
    share = f"{view.shares[task]:.0%} of slots" if task in view.shares else ""
    score = f"training {_number(view.training_returns[task])}" if task in view.training_returns else ""
    return ", ".join(part for part in (score, share) if part)


def _seconds(view: RunView) -> str:
    """Format the three largest shares of the learner process's time since the last row."""
    spent = view.seconds.get("learner", {})
    # "learner" is the whole update; its parts are listed as well.
    known = {part: seconds for part, seconds in spent.items() if part != "learner" and seconds > 0}
    total = sum(known.values())
    most = sorted(known.items(), key=lambda item: -item[1])[:3]
    return "learner: " + ", ".join(f"{part} {seconds / total:.0%}" for part, seconds in most) if most else ""


def _skipped(view: RunView) -> str:
    count = view.skipped_evaluations
    skipped = f"{count} evaluation{'s were' if count != 1 else ' was'} skipped"
    return f"{skipped}: the evaluator lagged behind training; --eval-wait makes training wait"


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
