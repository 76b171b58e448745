"""Find the options that an environment's `reset` reads: Gymnasium has no list of them, so its source is searched."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

_MOST_DEPTH = 4


def reset_options(env: Any) -> tuple[str, ...]:
    """Return the options that `reset` reads, or a function that it passes its options to (CartPole's `low`, `high`)."""
    return tuple(dict.fromkeys(_read(env, getattr(env, "reset", None), "options", 0)))


def _read(env: Any, function: Any, name: str, depth: int) -> Iterator[str]:
    """Yield the keys that a function reads from its argument `name`."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):  # no source, as in C
        return
    key = rf"""{name}\s*(?:\.get\(|\.pop\(|\[)\s*["'](\w+)["']|["'](\w+)["']\s+in\s+{name}\b"""
    yield from (one or other for one, other in re.findall(rf"\b(?:{key})", source))
    for call in ast.walk(tree) if depth < _MOST_DEPTH else ():
        if isinstance(call, ast.Call) and any(_is(value, name) for value in _values(call)):
            called = _called(env, function, call.func)
            for argument in _arguments(called, call, name):
                yield from _read(env, called, argument, depth + 1)


def _values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Name) and value.id == name


def _arguments(called: Any, call: ast.Call, name: str) -> Iterator[str]:
    """Yield the arguments of the called function that get the variable `name`."""
    try:
        names = list(inspect.signature(called).parameters)
    except (TypeError, ValueError):
        return
    given = [*zip(names, call.args, strict=False), *((keyword.arg, keyword.value) for keyword in call.keywords)]
    for argument, value in given:
        if argument is not None and _is(value, name):
            yield argument


def _called(env: Any, function: Any, node: ast.expr) -> Any:
    """Return what an expression in a function's source stands for; None if that is not known."""
    if isinstance(node, ast.Name):
        return env if node.id == "self" else getattr(function, "__globals__", {}).get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == "super":
        return _inherited(env, function, node.attr)
    return getattr(_called(env, function, node.value), node.attr, None)


def _inherited(env: Any, function: Any, name: str) -> Any:
    plain = getattr(function, "__func__", function)
    owner = next((kind for kind in type(env).__mro__ if plain in vars(kind).values()), None)
    return None if owner is None else getattr(super(owner, env), name, None)
