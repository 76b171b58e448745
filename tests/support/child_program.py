"""A program for child processes in tests: does as it is told, through the fields of the messages it gets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from clearl.errors import EnvironmentFaultError
from clearl.runtimes.backend import Endpoints, MessageSink
from clearl.runtimes.messages import Failed, Message, Produce, Ready, Setup
from clearl.runtimes.timing import Stopwatch


class ChildProgram:
    """`ready` holds our pid; each `Produce` names a deed."""

    def __init__(self, sink: MessageSink, setup: Setup, places: Endpoints) -> None:
        self._outlet, self.watch = sink, Stopwatch()
        self.ready = Ready((os.getpid(), len(places.descriptors)), 0)  # type: ignore[attr-defined]

    def handle(self, message: Message) -> Iterator[Message]:
        assert isinstance(message, Produce)
        yield from _do(*message.tasks)

    def close(self) -> None: ...


def _do(deed: str, *arguments: str) -> Iterator[Message]:
    if deed == "print":
        print(*arguments, file=sys.stderr, flush=True)
    elif deed == "say":  # as an environment prints: nothing is flushed
        sys.stdout.write(arguments[0])
        yield Ready((0,), 0)
    elif deed == "fork":
        if (pid := os.fork()) == 0:
            print("from the fork")
            os._exit(0)
        os.waitpid(pid, 0)
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
        yield Failed("", os.environ.get(arguments[0], ""), "", "")
    elif deed == "threads":
        import torch

        yield Ready((torch.get_num_threads(),), 0)
    elif deed == "chatter":  # writes far more than a pipe holds, while nobody reads
        for _ in range(int(arguments[0])):
            os.write(1, b"x" * 999 + b"\n")
        os.write(1, b"the end\n")
        yield Ready((0,), 0)
    elif deed == "map":  # a process and session of its own that has named shared memory mapped, as games have
        code = (
            "import mmap, sys, time; file = open(sys.argv[1], 'w+b'); file.truncate(4096); "
            "memory = mmap.mmap(file.fileno(), 4096); print('mapped', flush=True); time.sleep(600)"
        )
        command = [sys.executable, "-c", code, arguments[0]]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session="session" in arguments)
        assert child.stdout is not None
        child.stdout.readline()
        yield Ready((child.pid,), 0)
    elif deed == "spawn":  # a process of its own, which outlives it and holds whatever it can
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        child = subprocess.Popen(command, start_new_session="session" in arguments)
        yield Ready((child.pid,), 0)
