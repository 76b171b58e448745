"""Walk a plan: grant rounds of acting until the plan has ended, and find the visit of a frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clearl.tasks.plan import Plan, assign_tasks
from clearl.types import Visit

_COUNTERS = ("segment", "granted_frames", "segment_start", "segment_episodes")


@dataclass(frozen=True)
class Grant:
    """Permission to produce one unroll in each of some slots."""

    segment: int
    tasks: tuple[str, ...]
    """The task of every slot of the run, not only of those that asked for the grant."""
    start_frames: int = 0
    """Frames that had been granted before."""


class PlanCursor:
    """Counts granted frames, so that all workers switch tasks at the same frame."""

    def __init__(self, plan: Plan, num_slots: int) -> None:
        self.plan, self.num_slots = plan, num_slots
        self.segment, self.granted_frames, self.segment_start = 0, 0, 0
        self.segment_episodes = 0

    @property
    def finished(self) -> bool:
        """True if every segment has been granted in full."""
        return self.plan.is_over(self.segment)

    def next_segment(self) -> int:
        """Return the segment of the next grant; the number of segments at the end of the plan."""
        self._advance()
        return self.segment

    def grant(self, frames: int) -> Grant | None:
        """Grant a round of `frames`; None at the end of the plan. A round is never split between segments."""
        if self.plan.is_over(self.next_segment()):
            return None
        tasks = tuple(assign_tasks(self.plan.segment(self.segment), self.num_slots, self._share()))
        self.granted_frames += frames
        return Grant(self.segment, tasks, self.granted_frames - frames)

    def take_back(self, frames: int) -> None:
        """Take back a granted round that was lost; it is granted again, in its own segment if that ends by frames."""
        self.granted_frames -= frames
        while self.segment > 0 and self.granted_frames < self.segment_start:
            before = self.plan.segment(self.segment - 1).frames
            if before is None:
                return
            self.segment -= 1
            self.segment_start -= before

    def count_episodes(self, segment: int, episodes: int) -> None:
        """Count episodes that ended in `segment`; enough of them end a segment that is measured in episodes."""
        if segment == self.segment:
            self.segment_episodes += episodes

    def visit(self, trained_frames: int) -> Visit:
        """Return the visit after `trained_frames` of training (exact for plans measured in frames)."""
        plan, cycle_frames = self.plan, self.plan.cycle_frames
        if cycle_frames is None:
            return Visit(self.segment, self._current().tasks, trained_frames, self.segment_start, None)
        repeated = sum(segment.frames or 0 for segment in plan.segments[plan.past_segments :])
        past_frames = cycle_frames - repeated
        cycles = max(0, trained_frames - past_frames) // repeated if plan.forever else 0
        start = cycles * repeated
        for index, segment in enumerate(plan.segments):
            assert segment.frames is not None
            if trained_frames < start + segment.frames or index == len(plan.segments) - 1:
                number = index + cycles * (len(plan.segments) - plan.past_segments)
                return Visit(number, segment.tasks, trained_frames, start, start + segment.frames, segment.extra_frames)
            start += segment.frames
        raise AssertionError("a plan has at least one segment")

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _COUNTERS}

    def restore(self, state: dict[str, Any]) -> None:
        for name in _COUNTERS:
            setattr(self, name, int(state[name]))

    def _current(self):
        return self.plan.segments[-1] if self.finished else self.plan.segment(self.segment)

    def _advance(self) -> None:
        while not self.finished and self._segment_over():
            frames = self.plan.segment(self.segment).frames
            # Boundaries are absolute, so a round that overshoots shortens the next segment instead of shifting all.
            self.segment_start += frames if frames is not None else self.granted_frames - self.segment_start
            self.segment += 1
            self.segment_episodes = 0

    def _segment_over(self) -> bool:
        segment = self.plan.segment(self.segment)
        if segment.frames is not None:
            return self.granted_frames >= self.segment_start + segment.frames
        return self.segment_episodes >= (segment.episodes or 0)

    def _share(self) -> float:
        segment = self.plan.segment(self.segment)
        if segment.frames is not None:
            return (self.granted_frames - self.segment_start) / segment.frames
        return self.segment_episodes / (segment.episodes or 1)
