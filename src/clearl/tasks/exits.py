"""Make environment code that calls `os._exit` in the learner's process raise instead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def exits_raise() -> Iterator[None]:
    """Turn `os._exit` into `SystemExit` in this block: otherwise a run ends without a message, perhaps with code 0.

    Processes that are forked in the block exit as usual.
    """
    ours, leave = os.getpid(), os._exit

    def leave_or_raise(code: int) -> NoReturn:
        if os.getpid() != ours:
            leave(code)
        raise SystemExit(code)

    os._exit = leave_or_raise
    try:
        yield
    finally:
        os._exit = leave
