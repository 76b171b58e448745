"""The entry point of every child process. Imports little, so that it is tied to its parent before slow imports."""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import mmap
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from clearl.registry import load_entry
from clearl.runtimes.host import quick_imports
from clearl.runtimes.local.channel import Channel
from clearl.runtimes.messages import ChannelClosed, Message, Setup, describe, pack, unpack

USER_ENVIRONMENT = "CLEARL_USER_ENVIRONMENT"
"""Holds the values that the parent changed for the start of a child, as JSON; null for those that were not set."""

PRINTED_BYTES, PRINTED_AT = 1 << 14, 8
"""Size of the ring of printed bytes, and where it begins in the output file, after the count of bytes ever printed."""

_PRINTED_END = PRINTED_AT + PRINTED_BYTES
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


class Printed(io.RawIOBase):
    """Copies what Python code prints into a ring in the output file's shared memory.

    A print costs no system call (0.6 us, not 8), and survives the process, even a SIGKILL. The
    count is read each time, so that forked processes append after each other.
    """

    __slots__ = ("_descriptor", "_ring")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        memory = mmap.mmap(descriptor, _PRINTED_END)
        # A slice of a memoryview costs twice as much as one of the map.
        self._ring = memory, memoryview(memory)[:PRINTED_AT].cast("Q")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any, /) -> int:
        """Append bytes; the oldest ones make room."""
        memory, counts = self._ring
        size, count = len(data), counts[0]
        at = PRINTED_AT + count % PRINTED_BYTES
        end = at + size
        if end <= _PRINTED_END:
            memory[at:end] = data
        else:
            self._wrap(bytes(data), count + size)
        counts[0] = count + size
        return size

    def _wrap(self, data: bytes, count: int) -> None:
        """Write the end of `data`, which is behind `count` bytes, round the end of the ring."""
        data = data[-PRINTED_BYTES:]
        at = (count - len(data)) % PRINTED_BYTES
        before, after = data[: PRINTED_BYTES - at], data[PRINTED_BYTES - at :]
        memory, _ = self._ring
        memory[PRINTED_AT + at : PRINTED_AT + at + len(before)] = before
        memory[PRINTED_AT : PRINTED_AT + len(after)] = after


class ChannelConnection:
    """The child's end of its connection; see `clearl.runtimes.backend.Connection`."""

    def __init__(self, channel: Channel, printed: Sequence[TextIO]) -> None:
        self._channel, self._printed = channel, printed

    def send(self, message: Message) -> None:
        for stream in self._printed:
            if not stream.closed:
                stream.flush()  # a line that has not ended
        self._channel.send(pack(message))

    def receive(self) -> Message:
        """Return the next message; waits for it."""
        return unpack(self._channel.receive())


def main(arguments: list[str]) -> int:
    """Run as `PARENT_PID CHANNEL_FD MODULE...`: import the modules, wait for the setup, serve until told to close."""
    parent, descriptor, *modules = arguments
    _exit_with_parent(int(parent))
    printed = sys.stdout, sys.stderr = _print_to_memory()
    # The parent decides when its children stop. Unlike SIG_IGN, a function is not passed on to what environments start.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    channel = Channel.inherited(int(descriptor))
    connection = ChannelConnection(channel, printed)
    try:
        with quick_imports():
            for module in modules:
                importlib.import_module(module)
        descriptors = channel.receive_descriptors()
        setup = connection.receive()
        assert isinstance(setup, Setup)
        _show_name(f"clearl:{setup.name}")
        with quick_imports():
            from clearl.runtimes.local.shared_memory import SharedEndpoints
            from clearl.runtimes.programs import serve

            make_program = load_entry(setup.program)
        _restore_environment()  # the libraries have read theirs
        serve(connection, make_program(connection, setup, SharedEndpoints(descriptors)))
    except ChannelClosed:
        return 0  # the parent has exited
    except Exception as error:  # noqa: BLE001 - the parent gets a report of any error
        return _report(connection, error)
    return 0


def _print_to_memory() -> tuple[TextIO, ...]:
    """Return streams in place of `sys.stdout` and `sys.stderr`; native code and other programs write to the files.

    A line is written when it ends, or at the next message to the parent: faster than each piece at once.
    """
    return tuple(
        # A raw stream is enough, as with `python -u`; pyright wants a buffered one.
        io.TextIOWrapper(Printed(descriptor), "utf-8", errors="backslashreplace", line_buffering=True)  # pyright: ignore
        for descriptor in (1, 2)
    )


def _report(connection: ChannelConnection, error: Exception) -> int:
    try:
        connection.send(describe(error))
    except ChannelClosed:
        return 0
    return 1


def _restore_environment() -> None:
    """Give environments, and what they start, the variables that the user has set."""
    for name, value in json.loads(os.environ.pop(USER_ENVIRONMENT, "{}")).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _exit_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent exits; where it cannot, the end of the connection does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(0)


def _show_name(name: str) -> None:
    """Set the name that `ps` and `top` show for this process; the kernel takes fifteen letters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
