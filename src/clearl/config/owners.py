"""Settings that plug-ins declare, collected from their registries when they are needed.

The registries are named by strings because they lie above this layer. What is collected imports neither torch nor the
packages of games: shipped plug-ins declare their settings in modules of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from clearl.config.engine import Setting, settings_of
from clearl.errors import ConfigError
from clearl.registry import Registry, load_entry

if TYPE_CHECKING:
    from clearl.config.run import RunConfig

_USED: Mapping[str, Callable[[RunConfig], Sequence[str]]] = {
    "clearl.protocols:PROTOCOLS": lambda config: [config.protocol],
    "clearl.methods:METHODS": lambda config: config.method.split("+"),
    "clearl.methods:CORRECTIONS": lambda config: [config.correction],
    "clearl.suites:SUITES": lambda config: [config.suite.partition(":")[0]],
    "clearl.runtimes:RUNTIMES": lambda config: [config.runtime],
}
"""The registries whose plug-ins declare settings, and the plug-ins that a run uses of each."""


def owned_settings() -> Mapping[str, Setting]:
    """Return every setting that a registered plug-in declares, by name."""
    return _collected(_state())


@lru_cache(maxsize=1)
def _collected(_: tuple[Any, ...]) -> Mapping[str, Setting]:
    """Collect once for each state of the registries: a run asks for settings in every update."""
    found: dict[str, Setting] = {}
    for kind in _kinds(_state()):
        for name, setting in settings_of(kind).items():
            if found.setdefault(name, setting) != setting:
                raise ConfigError(f"setting {name!r} is declared twice, by {found[name].group!r} and {setting.group!r}")
            if setting.default is dataclasses.MISSING:
                raise ConfigError(f"setting {name!r} of {setting.group!r} needs a default")
    return MappingProxyType(found)


def recorded_settings(config: RunConfig) -> list[str]:
    """Return the settings that a config file records: those of our own plug-ins, and of others that the run uses.

    The file can be read without plug-ins that the run did not use.
    """
    kinds = [
        registry.settings(name)
        for registry, used in _used(config)
        for name in registry
        if name in used or registry.ships(name)
    ]
    return _names(kinds)


def used_settings(config: RunConfig) -> frozenset[str]:
    """Return the settings that the plug-ins of a run declare: what reads another one has no meaning in this run."""
    return frozenset(_names(registry.settings(name) for registry, used in _used(config) for name in used))


def _used(config: RunConfig) -> Iterator[tuple[Registry[Any], Sequence[str]]]:
    """Yield each registry with the names of its plug-ins that a run uses and that are registered."""
    for registry, names in zip(_registries(), _USED.values(), strict=True):
        yield registry, [name for name in names(config) if name in registry]


def _names(kinds: Iterable[type | None]) -> list[str]:
    return list(dict.fromkeys(name for kind in kinds if kind is not None for name in settings_of(kind)))


def check_owned(config: RunConfig) -> Iterator[str]:
    """Yield every conflict that an owner finds by a static method `conflicts(config)` of its settings."""
    for kind in _kinds(_state()):
        if (conflicts := getattr(kind, "conflicts", None)) is not None:
            yield from conflicts(config)


@lru_cache(maxsize=1)
def _kinds(_: tuple[Any, ...]) -> tuple[type, ...]:
    declared = [registry.settings(name) for registry in _registries() for name in registry]
    return tuple(dict.fromkeys(kind for kind in declared if kind is not None))


def _state() -> tuple[Any, ...]:
    return tuple(registry.state for registry in _registries())


@lru_cache(maxsize=1)
def _registries() -> tuple[Registry[Any], ...]:
    return tuple(load_entry(entry) for entry in _USED)
