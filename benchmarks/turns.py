"""Train two runs by turns: while one works the other is stopped, so that other load on the machine affects both.

Runs one after the other differ by a third on a machine that others use, whatever their settings are. Here both are
alive, one of them stopped by a signal, and they change places every second. What is compared is the time that each was
given for the same frames, so that tasks of different cost count alike.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from clearl.bench.endtoend import sized
from clearl.config import RunConfig, to_yaml
from clearl.errors import WorkerError
from clearl.records.reader import scan_rows
from clearl.records.schema import METRICS_FILE

TURN_S = 1.0
_WARM_SHARE = 0.15


class Contender:
    """A `clearl run` that works only in its turns; records its frames after each of its own seconds."""

    def __init__(
        self, settings: str, directory: Path, environment: dict[str, str] | None = None, imports: Sequence[str] = ()
    ) -> None:
        directory.mkdir()
        file, self._out = directory / "config.yaml", directory / "run"
        file.write_text(settings)
        command = [sys.executable, "-m", "clearl", "run", "--config", str(file), "--out", str(self._out), "--quiet"]
        command += ["--imports", ",".join(imports)] if imports else []
        self._errors = (directory / "errors").open("w+")
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=self._errors, env=environment or dict(os.environ)
        )
        self.marks: list[tuple[float, int]] = [(0.0, 0)]
        self._spent = 0.0

    def take_turn(self, seconds: float) -> bool:
        """Work for `seconds`, then stop; return whether there is more to do."""
        started = time.monotonic()
        signal_family(self.process.pid, signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        signal_family(self.process.pid, signal.SIGSTOP)
        self._spent += time.monotonic() - started
        self.marks.append((self._spent, self._frames()))
        if self.process.returncode:
            self._errors.seek(0)
            raise WorkerError(f"the measured run failed: {self._errors.read().strip()}")
        return self.process.returncode is None

    def end(self) -> None:
        """End the run at once."""
        signal_family(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._errors.close()

    def _frames(self) -> int:
        metrics = self._out / METRICS_FILE
        rows = scan_rows(metrics).rows if metrics.exists() else []
        return max((row["frames"] for row in rows if row["kind"] == "train"), default=0)


def seconds_for_the_same(
    configs: Sequence[RunConfig], seconds: float, guess_frames_per_s: float
) -> tuple[list[float], int]:
    """Return the seconds of each run for the same frames, after the warm-up and before the first ended, and the frames.

    Each works for about `seconds`, if the guess is right.
    """
    frames = seconds * guess_frames_per_s
    # A row at every update tells how far a run is, to the update.
    settings = [to_yaml(replace(sized(config, frames), record_every_updates=1)) for config in configs]
    return raced(settings, [None] * len(settings), configs[0].imports)


def raced(
    settings: Sequence[str], environments: Sequence[dict[str, str] | None], imports: Sequence[str] = ()
) -> tuple[list[float], int]:
    """Train by turns, each with its YAML settings and environment variables; return as `seconds_for_the_same` does."""
    with tempfile.TemporaryDirectory(prefix="clearl-bench-") as directory, ExitStack() as stack:
        contenders = [
            stack.enter_context(_alive(Contender(text, Path(directory) / str(index), environment, imports)))
            for index, (text, environment) in enumerate(zip(settings, environments, strict=True))
        ]
        for contender in contenders[1:]:
            signal_family(contender.process.pid, signal.SIGSTOP)
        while all(tuple(contender.take_turn(TURN_S) for contender in contenders)):  # each, before any is asked about
            pass
        return compared([contender.marks for contender in contenders])


def compared(marks: Sequence[Sequence[tuple[float, int]]]) -> tuple[list[float], int]:
    """Return the seconds of each run for the same frames, and these frames; marks are (seconds, frames)."""
    last = min(each[-1][1] for each in marks)
    first = int(_WARM_SHARE * last)
    if first == 0:
        raise WorkerError("the measured runs were too short for a rate; measure for longer (--seconds)")
    return [_reached(each, last) - _reached(each, first) for each in marks], last - first


def signal_family(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and, if it is alive, to all that it has started, each with its group."""
    members = list(_family(pid))
    for member in members if number == signal.SIGSTOP else reversed(members):  # a parent is stopped before its children
        with suppress(ProcessLookupError):
            os.kill(member, number)


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in task.read_text().split():
                yield from _family(int(child))


def _reached(marks: Sequence[tuple[float, int]], frames: int) -> float:
    """Return the seconds at which a run reached `frames`, interpolated between two marks."""
    (after, end), (before, start) = next(
        (mark, earlier) for earlier, mark in pairwise(marks) if earlier[1] < frames <= mark[1]
    )
    return before + (after - before) * (frames - start) / (end - start)


@contextmanager
def _alive(contender: Contender) -> Iterator[Contender]:
    try:
        yield contender
    finally:
        contender.end()
