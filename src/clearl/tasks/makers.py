"""Tasks made by the user's own functions: `clearl.run(tasks={"winter": make_winter})`.

A run's settings name each as `name=module:function`, which every process of the run imports, or hold a Gymnasium spec
as `name=spec:{...}`. A function that cannot be imported is `name=here:`; only the process that received it can use it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clearl.errors import ConfigError
from clearl.registry import load_entry

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

_MAKERS: dict[str, Any] = {}
"""Functions and specs by the names of their tasks."""
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
            _MAKERS[name], problems[name] = made, problem
    return tuple(entries), problems


def with_makers(environments: Iterable[str], further: Iterable[str]) -> tuple[str, ...]:
    """Return the setting `environments` with further tasks; one of the same name is replaced."""
    return tuple({entry.partition("=")[0]: entry for entry in (*environments, *further)}.values())


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
    made = _MAKERS.get(name)
    return None if _is_spec(made) else made


def find_spec(name: str) -> EnvSpec | None:
    """Return the Gymnasium spec that the user gave for a task; None if there is none."""
    made = _MAKERS.get(name)
    return made if _is_spec(made) else None


def _is_spec(made: Any) -> bool:
    return hasattr(made, "to_json") and hasattr(made, "entry_point")


def _entry(name: str, made: Any) -> tuple[str, str | None]:
    """Return the entry of a task, and why worker processes cannot use it, or None."""
    if _is_spec(made):
        return _spec_entry(made)
    if not callable(made):
        raise ConfigError(f"tasks: {name!r} must be a function that makes an environment or a spec, got {made!r:.80}")
    problem = _import_problem(made)
    return (_HERE, problem) if problem else (_import_path(made), None)


def _spec_entry(spec: EnvSpec) -> tuple[str, str | None]:
    """Return the entry of a spec, with its classes and functions as `module:name`."""
    points = {field: getattr(spec, field) for field in ("entry_point", "vector_entry_point")}
    points = {field: made for field, made in points.items() if callable(made)}
    for made in points.values():
        if problem := _import_problem(made):
            return _HERE, problem
    try:
        return _SPEC + replace(spec, **{field: _import_path(made) for field, made in points.items()}).to_json(), None
    except (TypeError, ValueError) as error:
        problem = f"the spec {spec.id} cannot be written as JSON, so worker processes cannot receive it: {error}"
        return _HERE, f"{problem}; give its kwargs as numbers, texts, lists and dicts"


def _import_path(made: Any) -> str:
    return f"{made.__module__}:{made.__qualname__}"


def _import_problem(made: Any) -> str | None:
    """Return why worker processes cannot import a function or class by its name; None if they can."""
    module, path = getattr(made, "__module__", None), getattr(made, "__qualname__", "")
    shown = path or type(made).__name__
    own = shown.rpartition(".")[2]
    if own.isidentifier() and path:
        remedy = f"put it into a file, for instance my_envs.py, and give my_envs.{own}"
    else:  # a lambda, a partial or an object that can be called
        remedy = "define a function with def in a file, for instance make_env in my_envs.py, and give my_envs.make_env"
    if module in (None, "__main__"):
        return f"{shown} is defined in the program that runs, which worker processes cannot import: {remedy}"
    if not path:
        return f"{made!r:.80} has no name by which worker processes could import it: {remedy}"
    # A closure under functools.wraps bears the name of the function that it wraps.
    if getattr(sys.modules.get(module), path, None) is not made:
        return f"{shown} is not at the top of {module} by that name, so worker processes cannot import it: {remedy}"
    return None


def _load(name: str, entry: str) -> Any:
    if entry.startswith(_SPEC):
        return _spec(name, entry)
    try:
        return load_entry(entry)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"task {name!r}: {entry} cannot be imported: {error}") from error


def _spec(name: str, entry: str) -> EnvSpec:
    from gymnasium.envs.registration import EnvSpec

    try:
        return EnvSpec.from_json(entry.removeprefix(_SPEC))
    except Exception as error:  # whatever a file holds in place of a spec
        raise ConfigError(f"task {name!r}: not a Gymnasium spec: {error}") from error
