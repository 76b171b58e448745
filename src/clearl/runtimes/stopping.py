"""SIGTERM and Ctrl-C: the first asks for a checkpoint and an orderly end, the second ends at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopFlag:
    """Whether the run was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def stop_on_signals() -> Iterator[StopFlag]:
    """Turn SIGINT and SIGTERM into a flag while the block runs. Outside of the main thread, signals are left alone."""
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if flag.signal is not None:
            os._exit(128 + number)
        flag.signal = number

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
