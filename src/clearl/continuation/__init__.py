"""Extend a run, in place or as a copy, when the next tasks arrive."""

from clearl.continuation.extension import (
    Extension,
    extend_run,
    fork_run,
    go_on,
    plan_extension,
    unfinished_extension,
)

__all__ = ["Extension", "extend_run", "fork_run", "go_on", "plan_extension", "unfinished_extension"]
