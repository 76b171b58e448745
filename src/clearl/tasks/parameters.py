"""A task is an id with parameters: `CartPole-v1?length=0.5&force_mag=8`.

A parameter is a keyword of the environment's constructor, else an attribute of the unwrapped environment, which its
constructor then uses (`clearl.tasks.construction`), else an option of its `reset`. `max_episode_steps` is the time
limit. A range `a..b` stands for several tasks; see `expand_ranges`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearl.errors import ConfigError, UnknownNameError
from clearl.tasks.reset_options import reset_options

Value = bool | int | float | str

TIME_LIMIT = "max_episode_steps"
"""The parameter of `gymnasium.make` that replaces the registered time limit."""


def split_task(task: str) -> tuple[str, dict[str, Value]]:
    """Return the id and the parameters of a task."""
    env_id, mark, listed = task.partition("?")
    parameters: dict[str, Value] = {}
    for part in listed.split("&") if mark else ():
        name, equals, text = part.partition("=")
        if not equals or not name.isidentifier() or not text:
            raise ConfigError(f"task {task!r}: parameters are written as ?name=value&name=value, got {part!r}")
        if name in parameters:
            raise ConfigError(f"task {task!r}: parameter {name} is given twice")
        parameters[name] = value = _value(text)
        if value != value:
            raise ConfigError(f"task {task!r}: {name} is NaN; give a number")
    return env_id, parameters


def join_task(env_id: str, parameters: Mapping[str, Value]) -> str:
    """Return the name of a task; equal values always give the same short name."""
    listed = "&".join(f"{name}={_text(value)}" for name, value in parameters.items())
    return f"{env_id}?{listed}" if listed else env_id


def expand_ranges(tasks: Sequence[str], count: int | None) -> tuple[str, ...]:
    """Expand each task with a range to `count` tasks in equal steps; `count` is None if ranges have no meaning."""
    return tuple(expanded for task in tasks for expanded in _expand(task, count))


def _expand(task: str, count: int | None) -> list[str]:
    if "?" not in task:
        return [task]
    env_id, parameters = split_task(task)
    ranges = {name: value for name, value in parameters.items() if isinstance(value, str) and ".." in value}
    if not ranges:
        return [task]
    if count is None:
        raise ConfigError(
            f"task {task!r} has a range, which is for protocol drift; give one value, or --protocol drift"
        )
    ends = {name: _ends(task, text) for name, text in ranges.items()}
    shares = [i / (count - 1) for i in range(count)]
    return [
        join_task(env_id, {**parameters, **{name: low + (high - low) * share for name, (low, high) in ends.items()}})
        for share in shares
    ]


def _ends(task: str, text: str) -> tuple[float, float]:
    low, _, high = (_value(part) if part else None for part in text.partition(".."))
    if not isinstance(low, int | float) or not isinstance(high, int | float) or low == high:
        raise ConfigError(f"task {task!r}: a range has two different numbers, as in 0.5..2.0, got {text!r}")
    return float(low), float(high)


@dataclass(frozen=True)
class Parameters:
    """The parameters of an environment, by how they are set."""

    keywords: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[str, ...]

    def __str__(self) -> str:
        keywords = tuple(name for name in self.keywords if name != TIME_LIMIT)
        limits = tuple(name for name in self.keywords if name == TIME_LIMIT)
        ways = {
            "constructor": keywords, "attribute": self.attributes, "reset": self.options, "time limit": limits,
        }  # fmt: skip
        return "; ".join(f"{way}: {', '.join(names)}" for way, names in ways.items() if names) or "none"


def constructor_keywords(creator: Callable[..., Any]) -> tuple[str, ...]:
    """Return the keywords in the signature of a constructor."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = inspect.signature(creator).parameters.values()
    return tuple(p.name for p in named if p.kind in kinds and p.name not in ("self", "render_mode"))


def known_parameters(env: Any, keywords: Sequence[str]) -> Parameters:
    """Return all parameters of an environment; constants of its class count as attributes."""
    unwrapped = env.unwrapped
    found = dict(vars(unwrapped))
    for kind in type(unwrapped).__mro__:
        found = {**vars(kind), **found}
    attributes = [
        name
        for name in (*vars(unwrapped), *(name for name in found if name not in vars(unwrapped)))
        if not name.startswith("_") and isinstance(found[name], bool | int | float | str) and name not in keywords
    ]
    return Parameters(tuple(keywords), tuple(attributes), reset_options(unwrapped))


def sort_parameters(
    env: Any, task: str, parameters: Mapping[str, Value], keywords: Sequence[str]
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the parameters that are attributes, converted to their types, and those that are options of `reset`."""
    known = known_parameters(env, keywords)
    attributes: dict[str, Value] = {}
    options: dict[str, Value] = {}
    for name, value in parameters.items():
        if name in known.attributes:
            attributes[name] = _like(getattr(env.unwrapped, name), value, task, name)
        elif name in known.options:
            options[name] = value
        else:
            raise _unknown(task, name, known)
    return attributes, options


def _unknown(task: str, name: str, known: Parameters) -> UnknownNameError:
    names = (*known.keywords, *known.attributes, *known.options)
    error = UnknownNameError(f"parameter of {split_task(task)[0]}", name, names)
    error.args = (f"{error} It has: {known}",)
    return error


def _like(old: Any, value: Value, task: str, name: str) -> Any:
    """Convert `value` to the type of the attribute."""
    if isinstance(old, float) and type(value) is int:
        return float(value)
    if type(old) is not type(value):
        raise ConfigError(f"task {task!r}: {name} is {type(old).__name__} ({old!r}), got {value!r}")
    return value


def with_options(env: Any, options: dict[str, Value]) -> Any:
    """Wrap an environment so that its `reset` receives these options."""
    import gymnasium

    class ResetOptions(gymnasium.Wrapper):
        """Passes options to every reset."""

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return self.env.reset(seed=seed, options={**given, **(options or {})})

    given = options
    return ResetOptions(env)


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
