"""Named plug-ins, imported only when they are used: ours, those of installed packages and of the user's modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from importlib.metadata import EntryPoints, distributions
from typing import Any, Generic, TypeVar, cast

from clearl.errors import ConfigError, UnknownNameError

Item = TypeVar("Item")


class Registry(Generic[Item]):
    """Names to plug-ins. An entry is the plug-in itself or a `module:attribute` string, imported on first use.

    Installed packages add entries by an entry point of the registry's `group`, modules of `--imports` by `register`.
    A name has one meaning: ours first, then registered ones, then entry points.
    """

    def __init__(
        self, kind: str, entries: Mapping[str, str], *, settings: Mapping[str, str] | None = None,
        group: str | None = None,
    ) -> None:  # fmt: skip
        """`settings` says where plug-ins of ours declare their settings: reading those then imports nothing heavy."""
        self.kind, self.group = kind, group
        self._entries: dict[str, str | Item] = dict(entries)
        self._settings = {name: (settings or {}).get(name) for name in entries}

    def __iter__(self) -> Iterator[str]:
        yield from self._entries
        yield from (name for name in self._installed if name not in self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._installed

    def register(self, name: str, entry: str | Item) -> None:
        """Add a plug-in, as an object or as `module:attribute`. A name that is taken is refused."""
        if not name or not all(part.isalnum() for part in name.replace("-", "_").split("_")):
            raise ConfigError(f"a {self.kind} is named by letters, digits, - and _, got {name!r}")
        if name in self._entries and not _same(self._entries[name], entry):
            raise ConfigError(f"{self.kind} {name!r} exists already; register yours under another name")
        self._entries[name] = entry

    @property
    def state(self) -> tuple[Any, ...]:
        """Return everything that is registered, as a key for what was computed from it."""
        return (*self._entries.items(), *self._installed)

    def get(self, name: str) -> Item:
        """Return the plug-in called `name`, or an error that names the nearest ones."""
        self.check(name)
        entry = self._entries.get(name) or self._installed[name]
        return load_entry(entry) if isinstance(entry, str) else cast(Item, entry)

    def check(self, name: str) -> None:
        """Raise an error that names the nearest plug-ins unless there is one called `name`; imports nothing."""
        UnknownNameError.check(self.kind, [name], self)

    def ships(self, name: str) -> bool:
        """Return whether the plug-in comes with this package."""
        return name in self._settings

    def settings(self, name: str) -> type | None:
        """Return the dataclass of settings that a plug-in declares as its attribute `settings`, or None."""
        if self.ships(name):
            entry = self._settings[name]
            return None if entry is None else load_entry(entry)
        return getattr(self.get(name), "settings", None)

    @cached_property
    def _installed(self) -> dict[str, str]:
        """The entry points of installed packages; of two with one name, the first on the path."""
        points = () if self.group is None else installed(self.group)
        return {point.name: point.value for point in reversed(tuple(points))}


def _same(old: Any, new: Any) -> bool:
    """Return whether two entries are one plug-in: a module that is imported twice registers two equal classes."""

    def identity(entry: Any) -> Any:
        return entry if isinstance(entry, str) else (f"{entry.__module__}:{entry.__qualname__}")

    return identity(old) == identity(new)


def installed(group: str) -> EntryPoints:
    """Return the entry points of one of our groups (`clearl.*`) in all installed packages."""
    return _installed_on(tuple(sys.path)).select(group=group)


@lru_cache(maxsize=1)
def _installed_on(_: tuple[str, ...]) -> EntryPoints:
    """Read the lists of all packages once for each search path, and parse those that name us: takes milliseconds."""
    ours = (package for package in distributions() if "[clearl." in (package.read_text("entry_points.txt") or ""))
    return EntryPoints(point for package in ours for point in package.entry_points)


def load_entry(entry: str) -> Any:
    """Import what `module:attribute` names."""
    module, _, attribute = entry.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError as error:
        raise ConfigError(f"{entry}: module {module!r} has no {attribute!r}") from error
