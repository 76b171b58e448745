"""A record: one payload with its slot, sequence number, random number and crc32c. The same bytes in RAM and on disk."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c

from clearl.errors import CorruptFileError

MAGIC = b"CLR1"  # names the format and its version; lets a scan find the next record after damage
_HEADER = struct.Struct("<4sIIIQQ")  # magic, crc32c, length of the whole record, slot, sequence, number
HEADER_NBYTES = _HEADER.size
_CHECKED_FROM = 8  # the crc covers everything after itself
_CHECKED, _CRC = struct.Struct("<IIQQ"), struct.Struct("<I")  # the checked part of the header by itself


Buffer = bytes | memoryview | mmap.mmap


@dataclass(frozen=True)
class ShardKey:
    """What makes a record one of this slot of this run, and not another's; and the bounds of what it may be."""

    slot: int
    stream: int
    """Of the slot's random numbers."""
    capacity: int
    max_record_nbytes: int


class Header(NamedTuple):
    crc: int
    length: int
    slot: int
    sequence: int
    number: int


def pack_record(slot: int, sequence: int, number: int, payload: bytes) -> bytes:
    """The record's bytes, ready to be written in one piece."""
    checked = _CHECKED.pack(HEADER_NBYTES + len(payload), slot, sequence, number) + payload
    return MAGIC + _CRC.pack(google_crc32c.value(checked)) + checked


def read_header(data: Buffer, offset: int = 0) -> Header | None:
    """The header at `offset`, unchecked; None where none can be."""
    if offset + HEADER_NBYTES > len(data):
        return None
    magic, *fields = _HEADER.unpack_from(data, offset)
    header = Header(*fields)
    return header if magic == MAGIC and header.length >= HEADER_NBYTES else None


def is_whole(data: Buffer, header: Header, offset: int = 0) -> bool:
    """Whether the record at `offset` is all there and unharmed."""
    end = offset + header.length
    return end <= len(data) and google_crc32c.value(bytes(data[offset + _CHECKED_FROM : end])) == header.crc


def open_record(record: bytes, *, slot: int, sequence: int, number: int) -> memoryview:
    """The payload of a record that must be the one asked for, or an error that says what it is instead."""
    checked = record[_CHECKED_FROM:]
    if (
        checked.startswith(_CHECKED.pack(len(record), slot, sequence, number))
        and record.startswith(MAGIC + _CRC.pack(google_crc32c.value(checked)))
    ):  # fmt: skip
        return memoryview(record)[HEADER_NBYTES:]
    header = read_header(record)
    if header is None or header.length != len(record) or not is_whole(record, header):
        raise CorruptFileError(f"the replay record of slot {slot}, sequence {sequence} is damaged")
    raise CorruptFileError(
        f"a replay record is slot {header.slot}, sequence {header.sequence} where slot {slot}, "
        f"sequence {sequence} of this run should be"
    )
