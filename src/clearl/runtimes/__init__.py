"""Runtimes decide when, and in which process, each part of a run does its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clearl.registry import Registry

if TYPE_CHECKING:  # a child process comes through here first, and must be quick
    from clearl.runtimes.runtime import Runtime

RUNTIMES: Registry[Runtime] = Registry(
    "runtime",
    {
        "inline": "clearl.runtimes.inline:run_inline",
        "local": "clearl.runtimes.local.backend:run_local",
        "ray": "clearl.runtimes.cluster.ray:run_ray",
    },
    group="clearl.runtimes",
)

__all__ = ["RUNTIMES"]
