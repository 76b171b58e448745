"""Environment code that ends its process is made to raise, where the process is the learner's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def exits_raise() -> Iterator[None]:
    """Turn `os._exit` into `SystemExit` while the block runs: else a run ends without a word, and perhaps with code 0.

    Processes that are forked meanwhile exit as they always do.
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
