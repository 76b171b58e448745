"""Runtimes decide when, and in which process, each part of a run does its work."""

from __future__ import annotations

from clearl.registry import Registry
from clearl.runtimes.job import Job, Runtime

RUNTIMES: Registry[Runtime] = Registry(
    "runtime",
    {
        "inline": "clearl.runtimes.inline:run_inline",
        "local": "clearl.runtimes.local:run_local",
        "ray": "clearl.runtimes.ray:run_ray",
    },
)

__all__ = ["RUNTIMES", "Job", "Runtime"]
