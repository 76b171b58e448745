"""A record: one payload with its slot, sequence number, random number and crc32c. The same bytes in RAM and on disk.

A record with a label (`CLR2`) has it before the payload; those of version 0.1 (`CLR1`) have none.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c

from clearl.errors import CorruptFileError
from clearl.replay.labels import MAX_LABEL_NBYTES, UNKNOWN, Label, label_nbytes, pack_label, read_label

MAGIC = b"CLR"  # with the digit that follows it: the format and its version; lets a scan continue after damage
_BARE, _LABELLED = MAGIC + b"1", MAGIC + b"2"
_HEADER = struct.Struct("<4sIIIQQ")  # magic, crc32c, length of the whole record, slot, sequence, number
HEADER_NBYTES = _HEADER.size
MAX_OVERHEAD_NBYTES = HEADER_NBYTES + MAX_LABEL_NBYTES
"""The most bytes that a record has beside its payload."""
_CHECKED_FROM = 8  # the crc covers everything after itself
_CHECKED, _CRC = struct.Struct("<IIQQ"), struct.Struct("<I")  # the checked part of the header by itself


Buffer = bytes | memoryview | mmap.mmap


@dataclass(frozen=True)
class ShardKey:
    """The identity and size limits that every record of a shard must match."""

    slot: int
    stream: int
    """The stream of the slot's random numbers."""
    capacity: int
    max_record_nbytes: int


class Header(NamedTuple):
    crc: int
    length: int
    slot: int
    sequence: int
    number: int
    labelled: bool


def pack_record(slot: int, sequence: int, number: int, payload: bytes, label: Label = UNKNOWN) -> bytes:
    """Return the record's bytes, ready to be written in one piece."""
    magic, body = (_BARE, payload) if label is UNKNOWN else (_LABELLED, pack_label(label) + payload)
    checked = _CHECKED.pack(HEADER_NBYTES + len(body), slot, sequence, number) + body
    return magic + _CRC.pack(google_crc32c.value(checked)) + checked


def read_header(data: Buffer, offset: int = 0) -> Header | None:
    """Return the header at `offset`, unchecked; None where none can be."""
    if offset + HEADER_NBYTES > len(data):
        return None
    magic, crc, length, slot, sequence, number = _HEADER.unpack_from(data, offset)
    if magic not in (_BARE, _LABELLED) or length < HEADER_NBYTES:
        return None
    return Header(crc, length, slot, sequence, number, magic == _LABELLED)


def record_label(data: Buffer, header: Header, offset: int = 0) -> Label:
    """Return the label of the whole record at `offset`."""
    return read_label(data, offset + HEADER_NBYTES) if header.labelled else UNKNOWN


def is_whole(data: Buffer, header: Header, offset: int = 0) -> bool:
    """Return whether the record at `offset` is complete and undamaged."""
    end = offset + header.length
    return end <= len(data) and google_crc32c.value(bytes(data[offset + _CHECKED_FROM : end])) == header.crc


def open_record(record: bytes, *, slot: int, sequence: int, number: int) -> memoryview:
    """Return the payload of a record that must be the one asked for, or an error that says what it is instead."""
    checked = record[_CHECKED_FROM:]
    if checked.startswith(_CHECKED.pack(len(record), slot, sequence, number)):
        crc = _CRC.pack(google_crc32c.value(checked))
        if record.startswith(_LABELLED + crc):
            return memoryview(record)[HEADER_NBYTES + label_nbytes(record, HEADER_NBYTES) :]
        if record.startswith(_BARE + crc):
            return memoryview(record)[HEADER_NBYTES:]
    header = read_header(record)
    if header is None or header.length != len(record) or not is_whole(record, header):
        raise CorruptFileError(f"the replay record of slot {slot}, sequence {sequence} is damaged")
    raise CorruptFileError(
        f"a replay record is slot {header.slot}, sequence {header.sequence} where slot {slot}, "
        f"sequence {sequence} of this run should be"
    )
