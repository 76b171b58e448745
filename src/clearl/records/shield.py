"""Keep a view or a mirror from ending the training that it shows."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable


class Shield:
    """Calls a view or a mirror until a call fails; then reports it once on stderr and makes no more calls."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.failed = False

    def call(self, action: Callable[..., object], *arguments: object) -> None:
        """Call `action` unless an earlier call has failed."""
        if self.failed:
            return
        try:
            action(*arguments)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - Rich raises SystemExit where a pipe has no reader
            self.failed = True
            with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be full or closed, too
                sys.stderr.write(f"clearl: {self.what} is switched off, training goes on: {_reason(error)}\n")


def _reason(error: BaseException) -> str:
    """Return the error as one line."""
    if isinstance(error, SystemExit | BrokenPipeError):
        return "the reader of its output is gone"
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(f"{type(error).__name__}: {text}".split())[:300]
