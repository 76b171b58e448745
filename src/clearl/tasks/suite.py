"""The seam to environments: a suite offers tasks with one common spec; `Envs` steps n environments of one task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from clearl.spaces import TaskSpec
from clearl.tasks.actions import TaskActions
from clearl.tasks.observations import TaskObservations
from clearl.types import EnvStep


class Envs(Protocol):
    """n environments of one task, stepped as one batch."""

    num_envs: int

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        """Start an episode in every environment; return the first frames [n, *frame_shape].

        With a seed, everything from here on depends on that seed only, whatever was played before.
        """
        ...

    def step(self, actions: np.ndarray) -> EnvStep:
        """Step every environment with its action [n]; autoreset as in `EnvStep`. The caller may keep the arrays."""
        ...

    def get_state(self) -> dict[str, Any] | None:
        """Return the state to resume from bit for bit, as JSON types and arrays; None if there is none."""
        ...

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        """Restore `get_state`; return the current frames."""
        ...

    def close(self) -> None: ...


class Suite(Protocol):
    """Tasks that one network can be trained on."""

    name: str
    tasks: tuple[str, ...]
    """The tasks chosen for this run, in order."""
    spec: TaskSpec
    """The spec common to all tasks: observations are padded, actions masked."""

    def mask(self, task: str) -> np.ndarray:
        """Return [mask_size] bool: which of the spec's actions `task` has."""
        ...

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> Envs:
        """Make environments of one task. With `training` False, episodes are whole games and nothing is shaped."""
        ...

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        """Return one frame as an RGB picture [H, W, 3] uint8, for videos and reports."""
        ...


@dataclass(frozen=True)
class Scene:
    """One environment to film."""

    envs: Envs
    picture: Callable[[np.ndarray], np.ndarray]
    """Draws the state that the last reset or step led to, as RGB [H, W, 3] uint8; takes the frame that it returned.

    Called once after each reset and step. After a step that ends an episode it draws the end, not the next start.
    """


@runtime_checkable
class DrawsStates(Protocol):
    """A suite whose environments draw themselves; a video of any other shows what the agent sees (`Suite.render`)."""

    def make_scene(self, task: str, *, seed: int) -> Scene:
        """Make one environment as `make` does with `training` False, which also draws its states.

        Raises `NoPictureError` if the task cannot be drawn, or not on this machine.
        """
        ...


@runtime_checkable
class ChangesInPlay(Protocol):
    """A suite whose environments can become another task within an episode (`drift_applied: at-once`)."""

    changes_in_play: bool
    """True if the settings of the run enable it."""

    def change(self, envs: Envs, task: str) -> Envs:
        """Turn one environment into one of another task, in the middle of its episode; do not use `envs` again."""
        ...


@runtime_checkable
class DescribesObservations(Protocol):
    """A suite that describes the observations of its environments outside of a run, such as the axes of an image.

    The description is stored with an agent, which otherwise has to ask if a shape is ambiguous.
    """

    def observations(self, task: str) -> TaskObservations:
        """Return the observations of a task, with their conversion to frames."""
        ...


@runtime_checkable
class DescribesActions(Protocol):
    """A suite whose actions are not just the number of a choice; their description is stored with an agent, too."""

    def actions(self, task: str) -> TaskActions:
        """Return the actions of a task, with their conversion to those of its environments."""
        ...


@runtime_checkable
class StepsSlowly(Protocol):
    """A suite that declares whether a step of its environments takes longer than inference, as physics does."""

    slow_steps: bool
