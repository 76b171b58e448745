"""Turn events of a run into rows, for the metrics file and listeners."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from clearl.acting.actor import EpisodeSums, add_episodes
from clearl.acting.evaluator import Evaluation
from clearl.learning.learner import Learner, UpdateStats
from clearl.records.schema import Row, eval_row, fault_row, restart_row, resume_row, segment_row, train_row
from clearl.records.writer import MetricsWriter
from clearl.replay.labels import ByTask, merged_by_task
from clearl.tasks.plan import Plan, Segment

RowListener = Callable[[Row], None]
Seconds = dict[str, dict[str, float]]
"""Seconds of each process, by activity."""
Health = dict[str, dict[str, Any]]


class Recorder:
    """Writes rows and passes them on; holds the run's clock, which continues from a checkpoint."""

    def __init__(
        self,
        writer: MetricsWriter,
        *,
        record_every_updates: int,
        listeners: Sequence[RowListener] = (),
        thins: bool = False,
    ):
        self.writer, self._every, self._thins = writer, record_every_updates, thins
        self._listeners = list(listeners)
        self._started = time.monotonic()
        self._wall_before = 0.0
        self._marked = (self._started, 0)
        self._losses: deque[UpdateStats] = deque(maxlen=record_every_updates)
        self._lags: deque[float] = deque(maxlen=record_every_updates)
        self._episodes: EpisodeSums = {}
        self._seconds: Seconds = {}
        self.processes: Callable[[], tuple[Seconds, Health]] | None = None
        """The seconds that each process has spent so far, and its state; None where there is one process."""
        self.replay_by_task: Callable[[], Sequence[ByTask]] = lambda: ()
        """What each worker's shards hold of each task."""

    @property
    def wall_s(self) -> float:
        """Seconds of training so far, over all resumes."""
        return round(self._wall_before + time.monotonic() - self._started, 3)

    def begin(self, plan: Plan, first: int = 0) -> None:
        """Record the segments of the plan from `first` on, at the start of a run or of its extension."""
        start: int | None = 0
        # In a plan without an end, segments are recorded as they begin: all of them cannot be written ahead.
        for index, segment in enumerate(plan.segments[:1] if plan.forever else plan.segments):
            end = None if start is None or segment.frames is None else start + segment.frames
            if index >= first:
                self.segment(index, segment, start, end)
            start = end

    def segment(self, index: int, segment: Segment, start_frames: int | None, end_frames: int | None) -> None:
        """Record a segment with its bounds in frames, planned or true."""
        self.emit(
            segment_row(
                tasks=segment.tasks, weights=segment.weights, end_weights=segment.end_weights,
                start_frames=start_frames, end_frames=end_frames, index=index, extra_frames=segment.extra_frames,
            )
        )  # fmt: skip

    def resumed(self, learner: Learner, wall_s: float) -> None:
        """Record that the run resumed from a checkpoint taken after `wall_s` seconds."""
        self._wall_before = wall_s
        self._marked = (time.monotonic(), learner.frames)
        self.emit(resume_row(frames=learner.frames, updates=learner.updates, wall_s=self.wall_s))

    def state(self) -> dict[str, Any]:
        """Return the updates that wait for their row, as JSON types."""
        episodes = {task: list(sums) for task, sums in self._episodes.items()}
        return {"losses": [asdict(stats) for stats in self._losses], "lags": list(self._lags), "episodes": episodes}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        self._losses.extend(UpdateStats(**stats) for stats in state["losses"])
        self._lags.extend(state["lags"])
        self._episodes = {task: tuple(sums) for task, sums in state.get("episodes", {}).items()}

    def episodes(self, ended: EpisodeSums) -> None:
        """Count episodes of training that ended, for the next row."""
        self._episodes = add_episodes(self._episodes, ended)

    def updated(
        self, learner: Learner, stats: UpdateStats, lag: float, tasks: Sequence[str], replay: Mapping[str, Any]
    ) -> None:
        """Count an update; every `record_every_updates` of them write a row with the means since the last.

        `tasks`: of all slots when the newest unrolls of the batch were played.
        """
        self._losses.append(stats)
        self._lags.append(lag)
        rows, left = divmod(learner.updates, thinned(self._every, learner.updates) if self._thins else self._every)
        if left:
            return
        now = time.monotonic()
        then, frames = self._marked
        self._marked = (now, learner.frames)
        count = len(self._losses)
        # A method may change its terms between two rows (Progress & Compress does): a mean over its own updates each.
        terms = {name: [s.loss[name] for s in self._losses if name in s.loss] for name in stats.loss}
        loss = {name: sum(values) / len(values) for name, values in terms.items()}
        extra: dict[str, Any] = {
            "grad_norm": sum(s.grad_norm for s in self._losses) / count,
            "learning_rate": stats.learning_rate,
            "bad_updates": learner.bad_updates,
            **self._environment_values(tasks),
        }
        if diagnosed := [s.diagnostics for s in self._losses if s.diagnostics is not None]:
            extra["diagnostics"] = diagnosed[-1]
        # Now and then: it looks at the index of the whole buffer.
        if rows % _ROWS_TO_COUNT == 1 and (counted := [*filter(None, self.replay_by_task())]):
            replay = {**replay, "by_task": merged_by_task(counted, learner.frames)}
        self.emit(
            train_row(
                tasks=tuple(dict.fromkeys(tasks)), frames=learner.frames, updates=learner.updates,
                fps=round((learner.frames - frames) / max(now - then, 1e-9), 1), loss=loss,
                lag_updates=sum(self._lags) / count, replay=replay, wall_s=self.wall_s, extra=extra,
            )
        )  # fmt: skip
        self._losses.clear()
        self._lags.clear()

    def _environment_values(self, tasks: Sequence[str]) -> dict[str, Any]:
        """Collect the values of a row beside the learner's: episodes, shares of a mixture, processes."""
        values: dict[str, Any] = {}
        if self._episodes:
            values["episodes"] = {
                task: {"count": int(count), "mean_return": total / count, "mean_length": steps / count}
                for task, (count, total, steps) in self._episodes.items()
            }
            self._episodes = {}
        shares = Counter(tasks)
        if len(shares) > 1:
            values["shares"] = {task: count / len(tasks) for task, count in shares.items()}
        if self.processes is not None:
            seconds, values["health"] = self.processes()
            values["seconds"] = {name: _since(parts, self._seconds.get(name, {})) for name, parts in seconds.items()}
            self._seconds = seconds
        return values

    def evaluated(
        self, evaluation: Evaluation, *, frames: int, updates: int, segment: int | None = None, skipped: int = 0
    ) -> None:
        """Record the evaluation of one task with the weights after `frames` of training: a row for each column."""
        columns = {evaluation.column: evaluation.scores, **evaluation.others}
        for column, scores in columns.items():
            self.emit(
                eval_row(
                    task=evaluation.task, frames=frames, mean_return=float(np.mean(scores)), episodes=len(scores),
                    updates=updates, wall_s=self.wall_s, std=float(np.std(scores)), column=column,
                    segment=segment, skipped=skipped, secondary=column != evaluation.column,
                    success_rate=evaluation.success_rates.get(column),
                )
            )  # fmt: skip

    def fault(self, learner: Learner, worker: str, problem: str) -> None:
        """Record a failure that the run survived."""
        self.emit(fault_row(frames=learner.frames, worker=worker, problem=problem, wall_s=self.wall_s))

    def restarted(self, learner: Learner, worker: str, after_s: float) -> None:
        """Record that a failed process works again."""
        self.emit(restart_row(frames=learner.frames, worker=worker, after_s=round(after_s, 3), wall_s=self.wall_s))

    def emit(self, row: Row) -> None:
        """Write one row and pass it on."""
        self.writer.write(row)
        for listener in self._listeners:
            listener(row)


_ROWS_BEFORE_THINNING = 10_000
_ROWS_TO_COUNT = 10


def thinned(every: int, updates: int) -> int:
    """Return the updates between two rows of a run without an end: doubled whenever the run has doubled its length.

    The rows of training then grow with the logarithm of its length; evaluations are never thinned.
    """
    return every << max(0, (updates // (every * _ROWS_BEFORE_THINNING)).bit_length())


def _since(parts: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {part: round(seconds - before.get(part, 0.0), 3) for part, seconds in parts.items()}
