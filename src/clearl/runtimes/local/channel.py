"""A connection between two processes: whole messages in msgpack, each after its length, which has a cap."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

import msgpack

from clearl.runtimes.messages import BadMessage, ChannelClosed

MAX_MESSAGE_BYTES = 1 << 24
MAX_DESCRIPTORS = 16
_LENGTH = struct.Struct("<I")
_CHUNK_BYTES = 1 << 16


class Channel:
    """Sends and receives messages over one stream socket. A message is a tuple of plain values."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._received = bytearray()
        self._closed = False

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        """Return the two ends of a new connection."""
        left, right = socket.socketpair()
        return Channel(left), Channel(right)

    @staticmethod
    def inherited(descriptor: int) -> Channel:
        """Return the end that a parent process left open for us; our own children do not get it."""
        sock = socket.socket(fileno=descriptor)
        sock.set_inheritable(False)
        return Channel(sock)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: tuple[Any, ...]) -> None:
        """Send a whole message; raise `ChannelClosed` if the other end is closed."""
        body: bytes = msgpack.packb(message, use_bin_type=True)  # type: ignore[assignment]  # its stub allows None
        if len(body) > MAX_MESSAGE_BYTES:
            raise BadMessage(f"a message of {len(body)} bytes; {MAX_MESSAGE_BYTES} is the most")
        try:
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
        except OSError as error:
            raise ChannelClosed from error

    def send_descriptors(self, descriptors: Sequence[int]) -> None:
        """Share open files with the other process, which must call `receive_descriptors`."""
        try:
            socket.send_fds(self._socket, [_LENGTH.pack(len(descriptors))], descriptors)
        except OSError as error:
            raise ChannelClosed from error

    def receive_descriptors(self) -> list[int]:
        """Return the open files that the other process shares; our own children do not get them."""
        data, descriptors, _, _ = socket.recv_fds(self._socket, _LENGTH.size, MAX_DESCRIPTORS)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if not data:
            raise ChannelClosed
        if data != _LENGTH.pack(len(descriptors)):
            raise BadMessage(f"{len(descriptors)} open files came, but not as many as were announced")
        return descriptors

    def receive(self) -> tuple[Any, ...]:
        """Return the next message; waits for it."""
        while True:
            message = self._next()
            if message is not None:
                return message
            self._read(0)

    def poll(self) -> list[tuple[Any, ...]]:
        """Return all messages that have arrived whole; does not wait. Raises `ChannelClosed` once no more can come."""
        with contextlib.suppress(BlockingIOError, ChannelClosed):
            while True:
                self._read(socket.MSG_DONTWAIT)
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        if self._closed and not messages:
            raise ChannelClosed
        return messages

    def close(self) -> None:
        self._socket.close()

    def _read(self, flags: int) -> None:
        try:
            data = self._socket.recv(_CHUNK_BYTES, flags)
        except ConnectionError:
            data = b""
        if not data:
            self._closed = True
            raise ChannelClosed
        self._received += data

    def _next(self) -> tuple[Any, ...] | None:
        if len(self._received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._received)
        if length > MAX_MESSAGE_BYTES:
            raise BadMessage(f"a message of {length} bytes was announced; {MAX_MESSAGE_BYTES} is the most")
        end = _LENGTH.size + length
        if len(self._received) < end:
            return None
        body = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        return _unpack(body)


def _unpack(body: bytes) -> tuple[Any, ...]:
    try:
        message = msgpack.unpackb(body, raw=False, use_list=False, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise BadMessage(f"not msgpack: {error}") from error
    if not isinstance(message, tuple):
        raise BadMessage(f"a message is a tuple, not {type(message).__name__}")
    return message
