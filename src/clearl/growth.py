"""Growth of spaces: the places of smaller observations and actions in larger ones, and arrays padded to them.

    growth = Growth(old, new)                  # raises an error that names what cannot grow
    rows = growth.unroll(rows)                 # unrolls of the old spec, as the new one holds them

New entries are zero in observations, and masked out in everything that was played before: V-trace, entropy and cloning
leave them out, so that losses on padded unrolls equal those on the original unrolls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clearl.errors import ConfigError
from clearl.spaces import MASK_FIELD, ActionSpec, ObservationSpec, TaskSpec, field_name
from clearl.unroll import Unroll


@dataclass(frozen=True)
class Growth:
    """The step from the spec of an agent to a larger one that holds it."""

    old: TaskSpec
    new: TaskSpec

    def __post_init__(self) -> None:
        for problem in (*_observation_problems(self.old.observation, self.new.observation), *self._action_problems()):
            raise ConfigError(f"the agent cannot grow to the next tasks: {problem}")

    def __str__(self) -> str:
        """Describe what grows: `observations (4,) -> (7,), actions (3,) -> (5,)`."""
        old, new = self.old.observation.parts, self.new.observation.parts
        parts = [
            f"{name or 'observations'} {old[name].shape if name in old else 'none'} -> {part.shape}"
            for name, part in new.items()
            if name not in old or old[name].shape != part.shape
        ]
        before, after = self.old.action, self.new.action
        choices = [f"actions {before.choices} -> {after.choices}"] * (before.choices != after.choices)
        reals = [f"real numbers of an action {before.reals} -> {after.reals}"] * (before.reals != after.reals)
        return ", ".join([*parts, *choices, *reals]) or "masks of states"

    @cached_property
    def mask_places(self) -> np.ndarray:
        """[old mask_size]: the index of each option and real number in the new masks."""
        old, new = self.old.action, self.new.action
        return np.concatenate([_option_places(old, new), sum(new.choices) + np.arange(old.reals)]).astype(np.int64)

    @cached_property
    def policy_places(self) -> np.ndarray:
        """[old policy_size]: the index of each number of a policy in the new ones."""
        deviations = sum(self.new.action.choices) + self.new.action.reals + np.arange(self.old.action.reals)
        return np.concatenate([self.mask_places, deviations]).astype(np.int64)

    def policy(self, policy: np.ndarray) -> np.ndarray:
        """Pad policies [..., policy_size] with 0 for new entries, which masks leave out."""
        return _spread(policy, self.policy_places, self.new.action.policy_size)

    def mask(self, mask: np.ndarray) -> np.ndarray:
        """Pad masks [..., mask_size] of tasks or states: new actions are not allowed."""
        return _spread(mask, self.mask_places, self.new.action.mask_size)

    def action(self, action: np.ndarray) -> np.ndarray:
        """Pad actions [..., *action_shape]."""
        old, new = self.old.action, self.new.action
        if not new.shape:
            return action
        choices = np.arange(len(old.choices))
        places = np.concatenate([choices, len(new.choices) + np.arange(old.reals)]).astype(np.int64)
        return _spread(action if old.shape else action[..., None], places, new.shape[0])

    def frames(self, frames: np.ndarray) -> np.ndarray:
        """Pad frames [..., *frame_shape] as they are stored, arrays or records."""
        dtype, shape = self.new.observation.frame_dtype, self.new.observation.frame_shape
        return self._shown(frames, dtype, shape, stacked=False)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Pad observations [..., *observation_shape] as networks see them, with images stacked; records as records."""
        spec = self.new.observation
        dtype, shape = (spec.record_dtype, ()) if spec.is_record else (spec.frame_dtype, spec.shapes[""])
        return self._shown(observation, dtype, shape, stacked=True)

    def unroll(self, rows: Unroll) -> Unroll:
        """Pad unrolls, with or without a slot axis."""
        return replace(
            rows, frames=self.frames(rows.frames), action=self.action(rows.action), policy=self.policy(rows.policy),
            mask=self.mask(rows.mask), last_action=self.action(rows.last_action),
        )  # fmt: skip

    def _shown(self, shown: np.ndarray, dtype: np.dtype, shape: tuple[int, ...], *, stacked: bool) -> np.ndarray:
        old, new = self.old.observation, self.new.observation
        axes = shown.shape if old.is_record else shown.shape[: shown.ndim - len(old.parts[""].shape)]
        padded = np.zeros((*axes, *shape), dtype)
        for name in old.parts:
            source = shown[field_name(name)] if old.is_record else shown
            target = padded[field_name(name)] if new.is_record else padded
            _fill(target, source, old.stack_of(name) if stacked else 1, len(old.parts[name].shape))
        if new.mask_size:
            # A state without a mask allowed all that its task has, as the task's own mask says.
            padded[MASK_FIELD] = self.mask(shown[MASK_FIELD]) if old.mask_size else True
        return padded

    def _action_problems(self) -> list[str]:
        old, new = self.old.action, self.new.action
        problems = []
        if bool(old.choices) != bool(new.choices) or bool(old.reals) != bool(new.reals):
            problems.append("actions of another kind would join the old ones; train them in a run of their own")
        elif old.bounded != new.bounded[: old.reals]:
            problems.append("an action within bounds so far would have none, which changes what old actions meant")
        return problems


def _observation_problems(old: ObservationSpec, new: ObservationSpec) -> list[str]:
    problems = []
    for name, part in old.parts.items():
        what = f"part {name!r} of the observations" if name else "the observations"
        there = new.parts.get(name)
        if there is None:
            problems.append(f"{what} is gone from the common spec")
        elif there.dtype != part.dtype:
            problems.append(f"{what}: {part.dtype} so far, {there.dtype} with the next tasks")
        elif old.stack_of(name) != new.stack_of(name):
            problems.append(f"{what}: frames that are stacked so far would not be, beside other parts")
    return problems


def _option_places(old: ActionSpec, new: ActionSpec) -> np.ndarray:
    starts = np.cumsum([0, *new.choices])
    places = [start + np.arange(count) for start, count in zip(starts, old.choices, strict=False)]
    return np.concatenate([np.zeros(0, np.int64), *places])


def _spread(array: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    """Return an array [..., size] with the numbers [..., n] at `places`, and 0 or False elsewhere."""
    spread = np.zeros((*array.shape[:-1], size), array.dtype)
    spread[..., places] = array
    return spread


def _fill(target: np.ndarray, source: np.ndarray, stack: int, rank: int) -> None:
    """Write [..., stack * d0, d1, ...] into the first corner of a larger array, frame by frame of the stack."""
    axis = source.ndim - rank

    def apart(array: np.ndarray) -> np.ndarray:
        return array.reshape(*array.shape[:axis], stack, array.shape[axis] // stack, *array.shape[axis + 1 :])

    corner = tuple(slice(0, size) for size in apart(source).shape[axis + 1 :])
    apart(target)[(..., *corner)] = apart(source)
