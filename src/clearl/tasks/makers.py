"""Tasks made by the user's own functions: `clearl.run(tasks={"winter": make_winter})`.

A run's settings name each as `name=module:function`, which every process of the run imports, or hold a Gymnasium spec
as `name=spec:{...}`. A function that cannot be imported is `name=here:`; only the process that received it can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clearl.errors import ConfigError
from clearl.registry import load_entry

_MAKERS: dict[str, Callable[..., Any]] = {}
_HERE, _SPEC = "here:", "spec:"


def named_tasks(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Replace tasks given as functions by names; return the settings, and why worker processes cannot import some."""
    tasks = settings.get("tasks")
    if not isinstance(tasks, Mapping):
        return dict(settings), {}
    if settings.get("suite", "gym") != "gym":
        raise ConfigError(f"tasks that are functions are of suite gym, but suite is {settings['suite']!r}")
    environments, unreachable = name_makers(tasks)
    return {**settings, "suite": "gym", "tasks": tuple(tasks), "environments": environments}, unreachable


def check_reachable(unreachable: Mapping[str, str], runtime: str) -> None:
    """Refuse a run whose worker processes cannot make all tasks."""
    if unreachable and runtime != "inline":
        name, problem = next(iter(unreachable.items()))
        raise ConfigError(f"task {name!r}: {problem}; or train in this process with runtime='inline'")


def name_makers(tasks: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the setting `environments` for callables or specs, and why some cannot be imported elsewhere."""
    entries, problems = [], {}
    for name, made in tasks.items():
        if not isinstance(name, str) or not name or set(name) & set("=,?:"):
            raise ConfigError(f"tasks: a name must be a text without = , ? and :, got {name!r}")
        entry, problem = _entry(name, made)
        entries.append(f"{name}={entry}")
        if problem:
            _MAKERS[name], problems[name] = _callable(made), problem
    return tuple(entries), problems


def use_makers(environments: Iterable[str]) -> None:
    """Register the tasks of the setting `environments` in this process."""
    for listed in environments:
        name, equals, entry = listed.partition("=")
        if not equals or not name or not entry:
            raise ConfigError(f"environments must be written as name=module:function, got {listed!r:.200}")
        if entry != _HERE:
            _MAKERS[name] = _load(name, entry)
        elif name not in _MAKERS:
            raise ConfigError(
                f"task {name!r} was made by a function of the program that started the run; "
                "call clearl.run there again with the same tasks, or move the function to a module"
            )


def find_maker(name: str) -> Callable[..., Any] | None:
    """Return the user's function that makes a task; None if there is none."""
    return _MAKERS.get(name)


def _entry(name: str, made: Any) -> tuple[str, str | None]:
    if hasattr(made, "to_json") and hasattr(made, "entry_point"):
        if isinstance(made.entry_point, str):
            return _SPEC + made.to_json(), None
        made = made.entry_point
    if not callable(made):
        raise ConfigError(f"tasks: {name!r} must be a function that makes an environment or a spec, got {made!r:.80}")
    module, path = getattr(made, "__module__", None), getattr(made, "__qualname__", "")
    shown = path or type(made).__name__
    remedy = f"put it into a file, for instance my_envs.py, and give my_envs.{shown.rpartition('.')[2]}"
    if module in (None, "__main__"):
        return _HERE, f"{shown} is defined in the program that runs, which worker processes cannot import: {remedy}"
    if not path.isidentifier():
        return _HERE, f"{shown} is no function at the top of a module, so worker processes cannot import it: {remedy}"
    return f"{module}:{path}", None


def _callable(made: Any) -> Callable[..., Any]:
    return made if not hasattr(made, "to_json") else made.make


def _load(name: str, entry: str) -> Callable[..., Any]:
    if entry.startswith(_SPEC):
        return _spec(name, entry).make
    try:
        return load_entry(entry)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"task {name!r}: {entry} cannot be imported: {error}") from error


def _spec(name: str, entry: str) -> Any:
    from gymnasium.envs.registration import EnvSpec

    try:
        return EnvSpec.from_json(entry.removeprefix(_SPEC))
    except Exception as error:  # whatever a file holds in place of a spec
        raise ConfigError(f"task {name!r}: not a Gymnasium spec: {error}") from error
