"""Continual reinforcement learning with experience replay (CLEAR, Rolnick et al. 2019).

`clearl.run(...)` trains, `clearl.load_agent(path)` loads what was trained. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":  # file locks, Unix sockets and signals are used everywhere
    raise ImportError("clearl runs on Linux and macOS; on Windows install it in WSL, the Windows Subsystem for Linux")

if TYPE_CHECKING:
    from clearl.api import run
    from clearl.artifacts import load_agent
    from clearl.config import RunConfig
    from clearl.errors import ClearlError

__version__ = "0.2.0.dev0"
__all__ = ["ClearlError", "RunConfig", "__version__", "load_agent", "run"]

_LAZY = {
    "run": "clearl.api",
    "load_agent": "clearl.artifacts",
    "RunConfig": "clearl.config",
    "ClearlError": "clearl.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'clearl' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
