"""The entry point of every child process. Imports little, so that it is tied to its parent before slow imports."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys

from clearl.registry import load_entry
from clearl.runtimes.host import quick_imports
from clearl.runtimes.local.channel import Channel
from clearl.runtimes.messages import ChannelClosed, Message, Setup, describe, pack, unpack

USER_ENVIRONMENT = "CLEARL_USER_ENVIRONMENT"
"""Holds the values that the parent changed for the start of a child, as JSON; null for those that were not set."""

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


class ChannelConnection:
    """The child's end of its connection; see `clearl.runtimes.backend.Connection`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def send(self, message: Message) -> None:
        self._channel.send(pack(message))

    def receive(self) -> Message:
        """Return the next message; waits for it."""
        return unpack(self._channel.receive())


def main(arguments: list[str]) -> int:
    """Run as `PARENT_PID CHANNEL_FD MODULE...`: import the modules, wait for the setup, serve until told to close."""
    parent, descriptor, *modules = arguments
    _die_with(int(parent))
    # The parent decides when its children stop. Unlike SIG_IGN, a function is not passed on to what environments start.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    channel = Channel.inherited(int(descriptor))
    connection = ChannelConnection(channel)
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
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
        return _report(connection, error)
    return 0


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


def _die_with(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies, where it can; the end of the connection does the rest."""
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
