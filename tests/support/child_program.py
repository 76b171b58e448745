"""A program for child processes in tests: does as it is told, through the fields of the messages it gets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from clearl.errors import EnvironmentFaultError
from clearl.runtimes.child import Link
from clearl.runtimes.messages import Close, Failed, Produce, Ready, Setup


def run(link: Link, setup: Setup, descriptors: Sequence[int]) -> None:
    """`Ready` holds our pid; each `Produce` names a deed."""
    link.send(Ready((os.getpid(), len(descriptors)), 0))
    while not isinstance(message := link.receive(), Close):
        assert isinstance(message, Produce)
        _do(link, *message.tasks)


def _do(link: Link, deed: str, *arguments: str) -> None:
    if deed == "print":
        print(*arguments, file=sys.stderr, flush=True)
    elif deed == "abort":
        os.abort()
    elif deed == "exit":
        raise SystemExit(int(arguments[0]))
    elif deed == "fault":
        try:
            raise RuntimeError("the motor is on fire")
        except RuntimeError as error:
            raise EnvironmentFaultError("walk", 3, 7, "step raised RuntimeError: the motor is on fire") from error
    elif deed == "environ":
        link.send(Failed("", os.environ.get(arguments[0], ""), "", ""))
    elif deed == "spawn":  # a process of its own, which outlives it and holds whatever it can
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        link.send(Ready((child.pid,), 0))
