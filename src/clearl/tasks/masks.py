"""The masks of states: `info["action_mask"]`, or a method `action_masks()`, the convention of sb3-contrib."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from clearl.spaces import ActionSpec
from clearl.tasks.actions import MASK_KEY, TaskActions, common_actions, describe_actions
from clearl.tasks.calls import env_call

AskMask = Callable[[], Any]
"""Returns the mask of an environment's present state."""


def mask_method(env: Any) -> AskMask | None:
    """Return the method `action_masks` of an environment, or of a wrapper around it (sb3-contrib's ActionMasker)."""
    find = getattr(env, "get_wrapper_attr", None) or partial(getattr, env.unwrapped)
    try:
        return find("action_masks")
    except AttributeError:
        return None


def masks_states(task: str, env: Any) -> bool:
    """Return whether an environment says which actions its states allow."""
    if mask_method(env) is not None:
        return True
    try:
        with env_call(task, "reset"):
            return MASK_KEY in env.reset(seed=0)[1]
    except Exception:  # noqa: BLE001 - what is wrong with it is reported with its place, when it is played
        return False


def allowed_actions(masks: np.ndarray, spec: ActionSpec) -> np.ndarray:
    """Return stored actions [n, *action_shape] that masks [n, mask_size] allow: the first option of each choice."""
    actions = np.zeros((len(masks), len(spec.choices) + spec.reals), spec.dtype)
    for i, options in enumerate(spec.options):
        actions[:, i] = masks[:, options].argmax(1)
    return actions.reshape(len(masks), *spec.shape)


class RandomActions:
    """Draws random actions from a space, within the masks of the states; the same ones for each new object."""

    def __init__(self, task: str, space: Any, ask_mask: AskMask | None = None) -> None:
        """`ask_mask` is asked where an info has no mask."""
        self._task, self._space, self._ask_mask = task, space, ask_mask
        self._rng = np.random.default_rng(0)
        space.seed(0)

    def draw(self, info: Mapping[str, Any]) -> Any:
        """Return an action for the state that came with `info`; raise `UnfitMaskError`."""
        if MASK_KEY in info:
            return self._within(info[MASK_KEY])
        return self._space.sample() if self._ask_mask is None else self._within(self._ask_mask())

    def _within(self, mask: Any) -> Any:
        actions, spec = self._actions
        allowed = actions.flags(mask)
        chosen = [self._rng.choice(np.flatnonzero(allowed[options])) for options in spec.options]
        stored = np.array([*chosen, *self._rng.normal(size=spec.reals)], spec.dtype)
        return actions.converter(spec)(stored.reshape(1, *spec.shape))[0]

    @cached_property
    def _actions(self) -> tuple[TaskActions, ActionSpec]:
        """Described only if there are masks: without them, a space that cannot be trained on may occur here."""
        actions = TaskActions(describe_actions(self._task, self._space))
        return actions, common_actions({self._task: actions})
