"""Modules of the user's own, imported so that they can register environments, torsos, protocols and methods."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from clearl.errors import ConfigError


def import_plugins(modules: Iterable[str]) -> None:
    """Import `modules`; those in the working directory are found too, also by worker processes."""
    modules = tuple(modules)
    if modules and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for module in modules:
        if problem := name_problem(module):
            raise ConfigError(problem)
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(f"imports: module {module!r} cannot be imported: {error}") from error
        except (Exception, SystemExit) as error:
            raise ConfigError(f"imports: module {module!r} {_failure(error)}; mend it and try again") from error


def name_problem(module: str) -> str | None:
    """Return what is wrong with the name of a module, or None."""
    if all(part.isidentifier() for part in module.split(".")):
        return None
    name = module.rpartition("/")[2].removesuffix(".py")
    remedy = f"; write {name}, without path and .py, in its directory" if name.isidentifier() else ""
    return f"imports must be names of modules, got {module!r}{remedy}"


def named_modules(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the modules that the settings of a run ask to import: `imports`, and names such as `gym:module:Env-v0`."""
    ids = [*_listed(str(settings.get("suite") or "").partition(":")[2]), *_listed(settings.get("tasks"))]
    ids += _listed(settings.get("probe_task"))
    in_ids = (name.partition("?")[0].rpartition(":")[0] for name in ids)
    made = (module for listed in _listed(settings.get("environments")) for module in _maker_modules(listed))
    around = (name.partition("?")[0].rpartition(":")[0] for name in _listed(settings.get("wrappers")))
    named = [*_listed(settings.get("imports")), *in_ids, *made, *around]
    return tuple(dict.fromkeys(filter(None, named)))


def _maker_modules(environment: str) -> list[str]:
    """Return the module in `name=module:function`, or those that a spec imports: its entry points and wrappers."""
    entry = environment.partition("=")[2]
    points = [entry]
    if entry == "here:":
        return []
    if entry.startswith("spec:"):
        try:
            spec = json.loads(entry.removeprefix("spec:"))
            wrappers = [wrapper["entry_point"] for wrapper in spec.get("additional_wrappers") or ()]
            points = [spec.get("entry_point"), spec.get("vector_entry_point"), *wrappers]
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):  # refused where it is read
            return []
    modules = [str(point or "").partition(":")[0] for point in points]
    return [module for module in modules if not f"{module}.".startswith("gymnasium.wrappers.")]


def import_asked(settings: Mapping[str, Any], *, source: str, imports: Iterable[str] = (), trust: bool = False) -> None:
    """Import the modules that `settings`, read from a file, need; refuse those that the user has not named.

    A run directory or a config file may come from a stranger: what it names is code that would run here.
    """
    imports, named = tuple(imports), named_modules(settings)
    unasked = [module for module in named if module not in imports]
    if unasked and not trust:
        listed = ",".join(unasked)
        raise ConfigError(
            f"{source} needs modules that are not imported unasked, as it may come from a stranger: {listed}; "
            f"if you know them, add --imports {listed}, or --trust to import whatever it names"
        )
    import_plugins(dict.fromkeys([*imports, *named]))


def _listed(value: Any) -> list[str]:
    """Return the names in a setting, which a library call may give as one text; other values are refused later."""
    if isinstance(value, str):
        return [name.strip() for name in value.split(",")]
    return [name for name in value if isinstance(name, str)] if isinstance(value, list | tuple) else []


def _failure(error: BaseException) -> str:
    """Return the error of a module as one line, with its place."""
    if isinstance(error, SyntaxError):
        return f"has a syntax error: {error.msg} ({error.filename}, line {error.lineno})"
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    return f"raised {text[:300]} ({place.filename}, line {place.lineno})"
