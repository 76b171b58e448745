"""Modules of the user's own, imported so that they can register environments."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable

from clearl.errors import ConfigError


def import_plugins(modules: Iterable[str]) -> None:
    """Import `modules`; those in the working directory are found too, also by worker processes."""
    modules = tuple(modules)
    if modules and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(f"imports: module {module!r} cannot be imported: {error}") from error
