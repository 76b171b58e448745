"""Named plug-ins, imported only when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from clearl.errors import UnknownNameError

Item = TypeVar("Item")


class Registry(Generic[Item]):
    """Names to `module:attribute` strings; looking one up imports it."""

    def __init__(self, kind: str, entries: dict[str, str]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def register(self, name: str, entry: str) -> None:
        """Add a plug-in as `module:attribute`; the module is imported when the name is first used."""
        self._entries[name] = entry

    def get(self, name: str) -> Item:
        """The plug-in called `name`, or an error that names the nearest ones."""
        if name not in self._entries:
            raise UnknownNameError(self.kind, name, self._entries)
        return load_entry(self._entries[name])


def load_entry(entry: str) -> Any:
    """What `module:attribute` names; imports the module."""
    module, _, attribute = entry.partition(":")
    return getattr(importlib.import_module(module), attribute)
