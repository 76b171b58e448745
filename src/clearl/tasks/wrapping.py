"""Apply wrappers to environments by name: `FlattenObservation`, `TimeLimit?max_episode_steps=200`, `module:Class`."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from clearl.errors import ConfigError, EnvironmentFaultError, UnknownNameError
from clearl.registry import load_entry
from clearl.tasks.parameters import split_task


def wrapped(env: Any, task: str, wrappers: Sequence[str]) -> Any:
    """Put the named wrappers around an environment, the first innermost."""
    for named in wrappers:
        name, arguments = split_task(named)
        wrapper = _find(name)
        try:
            env = wrapper(env, **arguments)
        except (TypeError, AssertionError) as error:
            raise ConfigError(f"wrappers: {named!r} cannot be put around {task!r}: {error}") from error
        except Exception as error:  # whatever a user's wrapper raises is shown with its traceback
            problem = f"wrapper {named!r} raised {type(error).__name__}: {error}\n{traceback.format_exc().rstrip()}"
            raise EnvironmentFaultError(task, 0, 0, problem) from error
    return env


def _find(name: str) -> Callable[..., Any]:
    import gymnasium.wrappers

    if ":" in name:
        try:
            return load_entry(name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"wrappers: {name!r} cannot be imported: {error}; write module:Class") from error
    if name not in gymnasium.wrappers.__all__:
        raise UnknownNameError("wrapper of Gymnasium", name, gymnasium.wrappers.__all__)
    return getattr(gymnasium.wrappers, name)
