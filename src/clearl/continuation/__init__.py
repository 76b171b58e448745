"""When the next tasks arrive: a run is extended in place, or a copy of it is, and goes on with what comes next."""

from clearl.continuation.extension import (
    Extension,
    extend_run,
    fork_run,
    go_on,
    plan_extension,
    unfinished_extension,
)

__all__ = ["Extension", "extend_run", "fork_run", "go_on", "plan_extension", "unfinished_extension"]
