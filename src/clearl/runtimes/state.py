"""The state that every runtime keeps beside the parts of a run: evaluations, checkpoints, the end of the plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from clearl.acting.actor import EpisodeSums
from clearl.acting.evaluator import Evaluation
from clearl.errors import EnvironmentFaultError, StorageError, WorkerError
from clearl.nets.network import as_module
from clearl.runtimes.runtime import RunContext
from clearl.storage.checkpoints import Saved, fitting
from clearl.storage.switch_weights import SwitchWeights
from clearl.tasks.plan import planned_end
from clearl.types import Batch


@dataclass(frozen=True)
class Snapshot:
    """The weights that a segment ended with, kept until an evaluator has time for them."""

    segment: int
    updates: int
    frames: int
    weights: np.ndarray
    """All parameters in one row, float32."""


class RunState:
    """Decides what is due, runs and records updates, saves and restores a whole run."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.finished = False
        self.segment = 0
        """The segment that is learnt from; the number of segments once the last has ended."""
        self.snapshots: deque[Snapshot] = deque()
        self.evaluated_frames = -1
        self._segment_start = 0
        self._evaluations = 0
        self._made = self._skipped = 0
        self._checkpointed_frames = 0

    def memory_nbytes(self, replay: Mapping[str, int]) -> dict[str, int]:
        """Count all that the method holds: replay, network, and what it keeps beside them."""
        return {"replay": replay["bytes"], **self.context.learner.state_nbytes()}

    def tasks_in_training(self, segment: int | None = None) -> tuple[str, ...]:
        """Return the tasks of a segment.

        The default is the one that is learnt from, or the last at the end of the plan.
        """
        plan, index = self.context.plan, self.segment if segment is None else segment
        return (plan.segments[-1] if plan.is_over(index) else plan.segment(index)).tasks

    @property
    def evaluation_due(self) -> bool:
        """True if the weights have trained on enough frames since the last evaluation."""
        return self.context.learner.frames >= self._evaluations * self.context.config.eval_every_frames

    def evaluated(self, evaluations: Sequence[Evaluation], *, frames: int, updates: int) -> None:
        """Record a regular evaluation of all tasks with the weights after `frames` frames."""
        due = frames // self.context.config.eval_every_frames
        skipped = max(0, due - self._evaluations)
        for evaluation in evaluations:
            self.context.recorder.evaluated(evaluation, frames=frames, updates=updates, skipped=skipped)
        self.evaluated_frames, self._evaluations = frames, due + 1
        self._made, self._skipped = self._made + 1, self._skipped + skipped

    @property
    def evaluations(self) -> dict[str, int]:
        """Counts of the evaluations between switches that were made and left out."""
        return {"made": self._made, "skipped": self._skipped}

    def evaluated_switch(self, evaluations: Sequence[Evaluation], segment: int, *, frames: int, updates: int) -> None:
        """Record an evaluation of all tasks with exactly the weights that `segment` ended with."""
        for evaluation in evaluations:
            self.context.recorder.evaluated(evaluation, frames=frames, updates=updates, segment=segment)

    def enter(self, segment: int) -> None:
        """Record the end of the segment that was learnt from until now, and the beginning of a later one.

        A round may be longer than whole segments: those in between are recorded as empty.
        """
        plan, frames = self.context.plan, self.context.learner.frames
        self._keep_weights(segment - 1)
        while self.segment < segment:
            self.context.recorder.segment(self.segment, plan.segment(self.segment), self._segment_start, frames)
            self.segment, self._segment_start = self.segment + 1, frames
        if not plan.is_over(segment):
            self.context.recorder.segment(segment, plan.segment(segment), frames, planned_end(plan, segment))

    def _keep_weights(self, segment: int) -> None:
        """Keep the weights of a switch; training continues if they cannot be written, as they serve videos only."""
        kept = SwitchWeights(self.context.run_dir, self.context.config.keep_switch_weights)
        try:
            kept.save(segment, as_module(self.context.learner.network).state_dict())
        except (StorageError, OSError) as error:
            self.context.recorder.fault(self.context.learner, "learner", f"weights of a switch are not kept: {error}")

    def ended(self, segment: int, episodes: EpisodeSums) -> None:
        """Count episodes of training that ended."""
        self.context.cursor.count_episodes(segment, int(sum(sums[0] for sums in episodes.values())))
        self.context.recorder.episodes(episodes)

    def update(
        self, batch: Batch, mean_version: float, tasks: Sequence[str], replay: Mapping[str, int]
    ) -> Iterator[str]:
        """Make and record one update, in the phases of `Learner.phases`.

        `mean_version`: of the weights that acted for the batch.
        """
        learner, context = self.context.learner, self.context
        visit = context.cursor.visit(learner.frames) if learner.method.needs_boundaries else None
        stats = yield from learner.phases(batch, visit)
        lag = learner.updates - 1 - mean_version
        context.recorder.updated(learner, stats, lag, tasks, replay)

    @property
    def checkpoint_due(self) -> bool:
        """True if enough frames have passed since the last checkpoint."""
        every = self.context.config.checkpoint_every_frames
        return every is not None and self.context.learner.frames - self._checkpointed_frames >= every

    @property
    def unsaved(self) -> bool:
        """True if the newest checkpoint does not hold all that was learnt."""
        return self.context.learner.frames > self._checkpointed_frames

    @contextmanager
    def saved_if_children_fail(self, salvage: Callable[[], None]) -> Iterator[None]:
        """Save the run with `salvage` if a worker, an evaluator or an environment fails for good in this block.

        A run that was told to stop ends in order all the same: what signals a whole batch job reaches games, too.
        """
        try:
            yield
        except (EnvironmentFaultError, WorkerError) as error:
            if self.context.stop:
                return salvage()
            if self.unsaved:
                with suppress(StorageError):  # a full disk must not hide the original error
                    salvage()
            if frames := self._checkpointed_frames:
                error.add_note(f"the newest checkpoint is of frame {frames:,}; the same command goes on from there")
            raise

    def save(self, *, shards: Sequence[int], actor: dict[str, Any] | None) -> None:
        """Write a checkpoint; `shards` are the next sequences of all slots, and must be safe on disk already."""
        context = self.context
        context.recorder.writer.sync()
        rows, slots = context.intake.state()
        context.checkpoints.save(
            {
                "learner": {"tensors": context.learner.tensors(), "state": context.learner.state()},
                "cursor": context.cursor.state(),
                "mixer": context.intake.mixer.state(),
                "intake": {"rows": rows, "slots": slots},
                "shards": list(shards),
                "actor": actor,
                "evaluations": self._evaluations,
                "evaluated_frames": self.evaluated_frames,
                "evaluations_made": self._made,
                "evaluations_skipped": self._skipped,
                "planned_segments": len(context.plan.segments),
                "segment": self.segment,
                "segment_start": self._segment_start,
                "snapshots": [asdict(snapshot) for snapshot in self.snapshots],
                "finished": self.finished,
                "recorder": context.recorder.state(),
                "metrics_position": context.recorder.writer.position,
                "wall_s": context.recorder.wall_s,
            }
        )
        self._checkpointed_frames = context.learner.frames

    def restore(self, saved: Saved) -> dict[str, Any]:
        """Restore the run from `saved`; return the tree, for what only the runtime can restore."""
        with fitting(saved.path):
            # Read apart: `saved` lives as long as the run, its arrays need not.
            return self._restore(saved, Saved(saved.path).tree)

    def _restore(self, saved: Saved, tree: dict[str, Any]) -> dict[str, Any]:
        context = self.context
        context.learner.restore(tree["learner"]["tensors"], tree["learner"]["state"])
        context.cursor.restore(tree["cursor"])
        context.intake.mixer.restore(tree["mixer"])
        context.intake.restore(tree["intake"]["rows"], tree["intake"]["slots"])
        self.evaluated_frames = int(tree["evaluated_frames"])
        # Counted anew: the run may resume with another interval.
        every = context.config.eval_every_frames
        self._evaluations = self.evaluated_frames // every + 1 if self.evaluated_frames >= 0 else 0
        self.finished = bool(tree["finished"])
        self._restore_segment(tree)
        self._checkpointed_frames = context.learner.frames
        context.recorder.restore(tree["recorder"])
        context.recorder.resumed(context.learner, float(tree["wall_s"]))
        planned = int(tree.get("planned_segments", len(context.plan.segments)))
        if planned < len(context.plan.segments):
            context.recorder.begin(context.plan, first=planned)
        for note in saved.notes:
            context.recorder.fault(context.learner, "checkpoint", note)
        return tree

    def _restore_segment(self, tree: dict[str, Any]) -> None:
        # Version 0.1 recorded no boundaries: its runs resume as if the segment had begun where it was planned.
        cursor = self.context.cursor
        self.segment = int(tree.get("segment", cursor.segment - cursor.finished))
        self._segment_start = int(tree.get("segment_start", cursor.segment_start))
        self._made, self._skipped = int(tree.get("evaluations_made", 0)), int(tree.get("evaluations_skipped", 0))
        self.snapshots = deque(Snapshot(**snapshot) for snapshot in tree.get("snapshots", ()))
