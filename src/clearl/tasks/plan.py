"""A plan is pure data: segments of training, each a mixture of tasks, and the tasks that are evaluated throughout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clearl.errors import ConfigError


@dataclass(frozen=True)
class Segment:
    """A stretch of training on one mixture of tasks, ended by frames or by episodes."""

    tasks: tuple[str, ...]
    weights: tuple[float, ...]
    frames: int | None = None
    episodes: int | None = None
    end_weights: tuple[float, ...] | None = None
    """If given, the mixture moves linearly from `weights` to these over the segment (frames only)."""
    extra_frames: int = 0
    """Frames at the end that a method needs in addition to the visit's own; reports leave them out."""

    def __post_init__(self) -> None:
        if not self.tasks or len(self.tasks) != len(self.weights):
            raise ConfigError(f"a segment needs as many weights as tasks, got {self.tasks} and {self.weights}")
        if (self.frames is None) == (self.episodes is None):
            raise ConfigError("a segment ends either by frames or by episodes")
        if (self.frames or self.episodes or 0) < 1:
            raise ConfigError("a segment must last at least one frame or episode")
        for weights in (self.weights, self.end_weights or self.weights):
            if len(weights) != len(self.tasks) or min(weights) < 0 or abs(sum(weights) - 1) > 1e-6:
                raise ConfigError(f"the weights of a segment must be >= 0 and sum to 1, got {weights}")
        if not 0 <= self.extra_frames < max(self.frames or 0, 1):
            raise ConfigError(
                f"extra_frames are the last of a segment's frames ({self.frames}), got {self.extra_frames}"
            )
        if self.end_weights is not None and self.frames is None:
            raise ConfigError("a mixture that moves needs a length in frames")

    def weights_at(self, share: float) -> tuple[float, ...]:
        """Return the mixture when `share` of the segment has passed."""
        if self.end_weights is None:
            return self.weights
        return tuple(a + (b - a) * share for a, b in zip(self.weights, self.end_weights, strict=True))


@dataclass(frozen=True)
class Plan:
    """One network's whole training."""

    name: str
    segments: tuple[Segment, ...]
    evaluate: tuple[str, ...]
    """Tasks that are evaluated throughout, trained or not."""
    frames_scale: int = 1
    """The number of plans on one x-axis: 3 if each of three networks sees a third of all frames (`separate`)."""
    forever: bool = False
    """True if the segments repeat without an end."""
    past_segments: int = 0
    """The number of first segments that `forever` does not repeat: those before the run was extended."""

    @property
    def total_frames(self) -> int | None:
        """Frames of the whole plan; None if a segment ends by episodes, or if the plan has no end."""
        return None if self.forever else self.cycle_frames

    @property
    def cycle_frames(self) -> int | None:
        """Frames of all segments, each once; None if one ends by episodes."""
        return _frames_of(self.segments)

    @property
    def has_boundaries(self) -> bool:
        """True if tasks change only at the bounds of segments."""
        return all(segment.end_weights is None for segment in self.segments)

    def is_over(self, index: int) -> bool:
        """Return whether the plan ends before the segment of this index."""
        return not self.forever and index >= len(self.segments)

    def segment(self, index: int) -> Segment:
        """Return the segment of an index, counted through all cycles."""
        return self.segments[self.place(index)[1]]

    def place(self, index: int) -> tuple[int, int]:
        """Return the cycle of a segment's index, and the segment's place in `segments`."""
        if not self.forever or index < self.past_segments:
            return 0, index
        cycle, place = divmod(index - self.past_segments, len(self.segments) - self.past_segments)
        return cycle, self.past_segments + place


def plan_from_json(content: Mapping[str, Any]) -> Plan:
    """Return the plan from its form in `meta.json` (`dataclasses.asdict`); keys of later versions are an error."""
    segments = [Segment(**{key: _as_tuple(value) for key, value in segment.items()}) for segment in content["segments"]]
    scale, forever = content.get("frames_scale", 1), content.get("forever", False)
    past = content.get("past_segments", 0)
    return Plan(content["name"], tuple(segments), tuple(content["evaluate"]), scale, forever, past)


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def planned_end(plan: Plan, index: int) -> int | None:
    """Return the end of a segment in frames from the start of the plan; None if episodes decide, here or before."""
    cycles, place = plan.place(index)
    before, repeated = _frames_of(plan.segments[: place + 1]), _frames_of(plan.segments[plan.past_segments :])
    if before is None or not cycles:
        return before
    return None if repeated is None else before + cycles * repeated


def _frames_of(segments: Sequence[Segment]) -> int | None:
    """Return the frames of some segments; None if one ends by episodes."""
    lengths = [segment.frames for segment in segments]
    return None if None in lengths else sum(length or 0 for length in lengths)


def lengthened(plan: Plan, extra_share: float) -> Plan:
    """Return the plan with extra frames at the end of each segment, as a share of the segment's own.

    Segments that end by episodes are unchanged.
    """
    if not extra_share:
        return plan
    segments = [
        segment if segment.frames is None else _lengthened(segment, segment.frames, round(extra_share * segment.frames))
        for segment in plan.segments
    ]
    return replace(plan, segments=tuple(segments))


def _lengthened(segment: Segment, frames: int, extra: int) -> Segment:
    return replace(segment, frames=frames + extra, extra_frames=extra)


def single(task: str, *, frames: int | None = None, episodes: int | None = None) -> Segment:
    """Return a visit to one task."""
    return Segment((task,), (1.0,), frames=frames, episodes=episodes)


def assign_tasks(segment: Segment, num_slots: int, share: float) -> list[str]:
    """Return the task of each slot when `share` of the segment has passed.

    Slots lie evenly on the unit interval that the weights divide. The interval rotates by 1/n after each n-th of the
    segment (n tasks), so that over the segment an equal mixture gives each task exactly its share, even if the slots
    cannot be split evenly, and every slot plays every task. Unequal weights are met to within one slot in a rotation.
    A mixture that moves does not rotate: its slots change their task one by one as a bound passes them.
    """
    weights = segment.weights_at(share)
    turns = len(segment.tasks) if segment.end_weights is None else 1
    turn = min(int(share * turns), turns - 1)
    bounds = [sum(weights[: i + 1]) for i in range(len(weights))]
    # A slot on a bound belongs to the next task; 1e-9 keeps rounding errors from deciding that in each rotation.
    offset = turn / turns + 1e-9
    return [_task_at(segment.tasks, bounds, ((slot + 0.5) / num_slots + offset) % 1.0) for slot in range(num_slots)]


def _task_at(tasks: Sequence[str], bounds: Sequence[float], position: float) -> str:
    for task, bound in zip(tasks, bounds, strict=True):
        if position < bound:
            return task
    return tasks[-1]
