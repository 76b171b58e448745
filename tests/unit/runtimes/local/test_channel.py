from __future__ import annotations

import os
import socket
import struct
from typing import Any

import msgpack
import pytest

from clearl.runtimes.local.channel import MAX_MESSAGE_BYTES, Channel
from clearl.runtimes.messages import BadMessage, ChannelClosed, Failed, Produced, Ready, pack, unpack

PRODUCED = Produced(7, {"a": (2.0, 5.5, 30.0)}, (5, 5), {"held": 3}, {"codec": 0.25})


@pytest.fixture
def ends():
    left, right = Channel.pair()
    yield left, right
    left.close()
    right.close()


@pytest.fixture
def raw():
    sock, other = socket.socketpair()
    channel = Channel(other)
    yield sock, channel
    sock.close()
    channel.close()


def packed(value: Any) -> bytes:
    body = msgpack.packb(value)
    assert body is not None
    return body


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def test_messages_arrive_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    sent = [("a", 1, (2, 3)), ("b", {"x": 0.5}), ("long", "y" * 50_000)]
    for message in sent:
        left.send(message)
    assert [right.receive() for _ in sent] == sent
    assert right.poll() == []


def test_a_message_that_comes_in_pieces_is_not_seen_before_its_end(raw: Any) -> None:
    sock, channel = raw
    data = framed(packed(["slowly"]))
    for byte in data[:-1]:
        sock.send(bytes([byte]))
        assert channel.poll() == []
    sock.send(data[-1:])
    assert channel.poll() == [("slowly",)]


def test_what_was_said_before_the_end_is_heard(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send(("last words",))
    left.close()
    assert right.poll() == [("last words",)]
    with pytest.raises(ChannelClosed):
        right.poll()
    with pytest.raises(ChannelClosed):
        right.receive()
    with pytest.raises(ChannelClosed):
        right.send(("anyone?",))


def test_an_announced_size_above_the_cap_is_refused_before_it_is_read(raw: Any) -> None:
    sock, channel = raw
    sock.send(struct.pack("<I", MAX_MESSAGE_BYTES + 1))
    with pytest.raises(BadMessage, match="is the most"):
        channel.poll()
    with pytest.raises(BadMessage, match="is the most"):
        channel.send(("x" * (MAX_MESSAGE_BYTES + 1),))


@pytest.mark.parametrize("body", [b"\xc1", packed(5), packed({"a": 1}), b"", packed([1]) + b"\x00"])
def test_what_is_no_message_is_refused(raw: Any, body: bytes) -> None:
    sock, channel = raw
    sock.send(framed(body))
    with pytest.raises(BadMessage):
        channel.poll()


def test_open_files_are_shared_and_not_passed_on(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    read_end, write_end = os.pipe()
    left.send_descriptors([write_end])
    os.close(write_end)
    (received,) = right.receive_descriptors()
    assert not os.get_inheritable(received)
    os.write(received, b"through")
    os.close(received)
    assert os.read(read_end, 10) == b"through"
    os.close(read_end)


def test_a_message_is_the_same_after_a_journey(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    for message in (PRODUCED, Ready((1, 2), 0), Failed("ValueError", "no", "no", "...")):
        left.send(pack(message))
        assert unpack(right.receive()) == message


@pytest.mark.parametrize(
    "values",
    [
        (),
        ("Unknown", 1),
        (["Ready"], (1,), 0),
        ("Ready", (1,)),
        ("Ready", (1,), 0, 0),
        ("Ready", (1.0,), 0),
        ("Ready", 1, 0),
        ("Ready", (True,), 0),
        ("Produced", 7, 2, (5,), {"held": "3"}, {}),
        ("Produced", 7, 2, (5,), {3: 3}, {}),
    ],
)
def test_a_field_of_another_type_is_refused(values: tuple[Any, ...]) -> None:
    with pytest.raises(BadMessage):
        unpack(values)
