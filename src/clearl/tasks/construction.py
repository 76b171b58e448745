"""Construct an environment with other constants, so that its constructor derives further values from them.

CartPole's constructor computes `self.polemass_length = self.masspole * self.length`. Setting `length` on a finished
environment would leave that product at the old length: the constructor has to run with the new value.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from clearl.errors import ConfigError
from clearl.tasks.calls import close_env

_LOCK = threading.RLock()
_PATCHED = ("__init__", "__setattr__")


def rebuild(env: Any, task: str, constants: Mapping[str, Any], make: Callable[[], Any]) -> Any:
    """Close `env` and make it again with other values for some attributes of the unwrapped environment."""
    kind = type(env.unwrapped)
    for name in constants:
        if (source := _local_source(kind, name)) is not None:
            raise ConfigError(
                f"task {task!r}: {name} cannot be changed, as {kind.__name__} computes it from its local {source}, of "
                "which other attributes may be derived; make it a keyword of the constructor"
            )
    close_env(task, env)
    try:
        with constants_kept(kind, constants):
            made = make()
    except TypeError as error:  # a class written in C
        raise ConfigError(f"task {task!r}: attributes of {kind.__name__} cannot be changed: {error}") from error
    for name, value in constants.items():
        if getattr(made.unwrapped, name) != value:
            raise ConfigError(f"task {task!r}: {name} cannot be changed: {kind.__name__} does not set self.{name}")
    return made


@contextmanager
def constants_kept(kind: type, constants: Mapping[str, Any]) -> Iterator[None]:
    """Give these attributes to every `kind` that this thread constructs in the block, whatever its constructor assigns.

    The constructor reads the new values, too, also those of class constants.
    """
    construct: Callable[..., None] = kind.__init__
    assign: Callable[..., None] = kind.__setattr__
    thread = threading.get_ident()
    building: set[int] = set()

    @functools.wraps(construct)
    def construct_with(self: Any, *args: Any, **options: Any) -> None:
        if threading.get_ident() != thread:
            return construct(self, *args, **options)
        for name in constants:
            if hasattr(kind, name):
                assign(self, name, constants[name])
        building.add(id(self))
        try:
            construct(self, *args, **options)
        finally:
            building.discard(id(self))

    @functools.wraps(assign)
    def assign_unless_kept(self: Any, name: str, value: Any) -> None:
        assign(self, name, constants[name] if name in constants and id(self) in building else value)

    with _LOCK:
        own = {name: vars(kind)[name] for name in _PATCHED if name in vars(kind)}
        try:
            kind.__init__, kind.__setattr__ = construct_with, assign_unless_kept  # type: ignore[method-assign]
            yield
        finally:
            for name in _PATCHED:
                if name in own:
                    setattr(kind, name, own[name])
                elif name in vars(kind):
                    delattr(kind, name)


def _local_source(kind: type, name: str) -> str | None:
    """Return a local variable or argument that the constructor reads for `self.name` and for something else, too."""
    for owner in kind.__mro__:
        construct = vars(owner).get("__init__")
        if not inspect.isfunction(construct):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(construct)))
        except (OSError, SyntaxError):  # no source to inspect
            continue
        local = set(construct.__code__.co_varnames) - {"self"}
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _sets(node, name)]
        inside = [read for node in assigned for read in _reads(node.value) if read in local]
        everywhere = _reads(tree)
        for read in inside:
            if everywhere.count(read) > inside.count(read):
                return read
    return None


def _sets(node: ast.Assign, name: str) -> bool:
    targets = [target for each in node.targets for target in ast.walk(each)]
    return any(isinstance(target, ast.Attribute) and target.attr == name for target in targets)


def _reads(tree: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
