"""Change the parameters of an environment in the middle of an episode (`drift_applied: at-once`).

The attributes that depend on a parameter are found by comparing newly constructed environments of two tasks. Setting
them on an environment in play turns it into one of the other task. An environment is refused by name if such an
attribute cannot be read or set, or changes in play.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from clearl.errors import ConfigError
from clearl.tasks.calls import close_env, env_call
from clearl.tasks.masks import RandomActions, mask_method
from clearl.tasks.parameters import split_task

_NO_PARAMETERS = ("spec", "_np_random", "_np_random_seed")
_PLAYED_STEPS = 20


def attributes_in_play(tasks: Sequence[str], make: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
    """Return, by task, the attributes that turn an environment of any of these tasks into one of that task."""
    envs = {task: make(task) for task in tasks}
    first, found = envs[tasks[0]], dict[str, None]()
    for task, env in envs.items():
        _check_spaces(task, first, env)
        differing = _differences(first.unwrapped, env.unwrapped)
        if task != tasks[0] and not differing:
            raise _refusal(tasks, "it is no attribute, but taken at construction or reset only")
        found |= dict.fromkeys(differing)
    values = {task: {name: getattr(env.unwrapped, name) for name in found} for task, env in envs.items()}
    for task, env in envs.items():
        _check_settable(tasks, values[task])
        with env_call(task, "play"):
            _check_kept(tasks, env, values[task])
        close_env(task, env)
    return values


def set_attributes(env: Any, values: Mapping[str, Any]) -> None:
    """Set attributes of an environment in play; each gets a copy, as an environment may change its own."""
    for name, value in values.items():
        setattr(env, name, copy.deepcopy(value))


def _differences(one: Any, other: Any) -> list[str]:
    """Return the attributes in which two environments differ."""
    names = [name for name in dict.fromkeys([*vars(one), *vars(other)]) if name not in _NO_PARAMETERS]
    return [name for name in names if not _is_same(getattr(one, name, None), getattr(other, name, None))]


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic | float):
        return bool(np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind in "fc"))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    return _is_comparable(one) and bool(one == other)


def _is_comparable(value: Any) -> bool:
    """Return whether `==` compares the contents of such objects."""
    return type(value).__eq__ is not object.__eq__


def _is_settable(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_settable, value))
    if isinstance(value, dict):
        return all(map(_is_settable, value.values()))
    return value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic)


def _check_spaces(task: str, one: Any, other: Any) -> None:
    if type(one.unwrapped) is not type(other.unwrapped):
        names = f"{type(one.unwrapped).__name__} and {type(other.unwrapped).__name__}"
        raise ConfigError(f"task {task!r} cannot be applied at once: {names} are different environments")
    if one.observation_space != other.observation_space or one.action_space != other.action_space:
        raise ConfigError(f"task {task!r} cannot be applied at once: the spaces of its environment change with it")


def _check_settable(tasks: Sequence[str], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if not _is_settable(value):
            raise _refusal(tasks, f"its environment keeps it in {name}, a {type(value).__name__}")


def _check_kept(tasks: Sequence[str], env: Any, values: Mapping[str, Any]) -> None:
    """Refuse attributes that an episode changes: setting them would change the state of the episode."""
    before = copy.deepcopy(dict(values))
    actions = RandomActions(tasks[0], env.action_space, mask_method(env))
    _, info = env.reset(seed=0)
    for _ in range(_PLAYED_STEPS):
        _, _, terminated, truncated, info = env.step(actions.draw(info))
        if terminated or truncated:
            _, info = env.reset()
    for name, value in before.items():
        if not _is_same(value, getattr(env.unwrapped, name)):
            raise _refusal(tasks, f"the attribute {name}, which depends on it, changes in play")


def _refusal(tasks: Sequence[str], problem: str) -> ConfigError:
    """Return the error that names the parameters in which the tasks differ."""
    given = [split_task(task)[1] for task in tasks]
    names = dict.fromkeys(name for parameters in given for name in parameters)
    moving = [name for name in names if any(parameters.get(name) != given[0].get(name) for parameters in given)]
    return ConfigError(
        f"parameter {', '.join(moving)} of {split_task(tasks[0])[0]} cannot be applied at once: {problem}; "
        "set drift_applied to reset"
    )
