"""Become another program, which the kernel asks to stop when the process that started it has exited (Linux only).

Runs as a plain script, `PARENT_PID PROGRAM ARGUMENT...`: the request survives the change of the program, and is made
before anything slow is imported.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> None:
    """Ask the kernel for SIGTERM at the parent's end, then run `command` in this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == int(parent):  # else it has ended before the request
        os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
