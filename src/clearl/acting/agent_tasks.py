"""The facts about its tasks that an agent keeps, and their form in `meta.json` and in exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearl.errors import CorruptFileError
from clearl.spaces import TaskSpec
from clearl.tasks.actions import TaskActions, actions_from_json
from clearl.tasks.observations import TaskObservations, observations_from_json
from clearl.tasks.suite import DescribesActions, DescribesObservations, Suite


@dataclass(frozen=True)
class AgentTask:
    """The facts about a task that an agent needs to act in it."""

    mask: np.ndarray
    """[mask_size] bool: what the task has of the actions of the spec."""
    actions: TaskActions | None
    """The environment's form of actions; None where it takes the number of the choice."""
    observations: TaskObservations | None = None
    """The environment's form of observations; None where it gives frames."""


def agent_tasks(suite: Suite) -> dict[str, AgentTask]:
    """Return all tasks of a suite."""
    return {
        task: AgentTask(
            suite.mask(task),
            suite.actions(task) if isinstance(suite, DescribesActions) else None,
            suite.observations(task) if isinstance(suite, DescribesObservations) else None,
        )
        for task in suite.tasks
    }


def tasks_to_json(tasks: Mapping[str, AgentTask]) -> dict[str, Any]:
    """Convert tasks to the JSON that `tasks_from_json` reads."""
    return {
        name: {
            "mask": task.mask.tolist(),
            "actions": None if task.actions is None else task.actions.description,
            "observations": None if task.observations is None else task.observations.description,
        }
        for name, task in tasks.items()
    }


def tasks_from_json(values: Any, spec: TaskSpec, source: str) -> dict[str, AgentTask]:
    """Return the tasks in a file; version 0.1 wrote masks only, into exports only."""
    tasks = {}
    if not isinstance(values, dict | None):
        raise CorruptFileError(f"{source}: tasks must be an object")
    for name, value in (values or {}).items():
        about = {"mask": value} if isinstance(value, list) else value
        if not isinstance(about, dict):
            raise CorruptFileError(f"{source}: task {name!r} must be an object")
        mask, actions, observations = np.array(about.get("mask")), about.get("actions"), about.get("observations")
        if mask.shape != (spec.action.mask_size,) or mask.dtype != np.bool_:
            raise CorruptFileError(f"{source}: the mask of task {name!r} does not fit its actions")
        tasks[name] = AgentTask(
            mask,
            None if actions is None else actions_from_json(actions, source),
            None if observations is None else _shown_by(observations, spec, source),
        )
    return tasks


def _shown_by(description: Any, spec: TaskSpec, source: str) -> TaskObservations:
    """Return the observations in a file, if they fit the spec."""
    observations = observations_from_json(description, source)
    for part in observations.parts:
        there = spec.observation.parts.get(part.name)
        shape = part.spec.shape
        if there is None or len(there.shape) != len(shape) or any(map(int.__gt__, shape, there.shape)):
            raise CorruptFileError(f"{source}: part {part.name!r} of a task does not fit its observations")
    return observations
