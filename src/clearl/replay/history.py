"""The life of a reservoir beyond its stream: capacities that it had before, and unrolls that were dropped on purpose.

Everything else follows from (stream, capacity, next_sequence), so this is all that the meta data of a run has to keep.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import zstandard

from clearl.errors import CorruptFileError
from clearl.replay.reservoir import Reservoir


class Earlier(NamedTuple):
    """A part of a shard's life that is over."""

    capacity: int
    until: int
    """The `next_sequence` at which it ended."""
    forgotten: str = ""
    """The unrolls dropped at its end, as `pack_mask` packs them; empty for none."""


def earlier_of(parts: Sequence[Mapping[str, Any]], slot: int) -> list[Earlier]:
    """Return the past of one slot, as the meta data of a run tells it of all slots."""
    return [
        Earlier(
            int(part["capacity_unrolls"]), int(part["sequences"][slot]),
            part["forgotten"][slot] if part.get("forgotten") else "",
        )
        for part in parts
    ]  # fmt: skip


def pack_mask(mask: np.ndarray) -> str:
    """Return a mask [n] bool as text. Visits make long runs of equal bits, so that it takes some dozen bytes."""
    return base64.b64encode(zstandard.compress(np.packbits(mask).tobytes(), 3)).decode()


def unpack_mask(text: str, count: int) -> np.ndarray:
    """Return the mask [count] that `pack_mask` was given."""
    nbytes = -(-count // 8)
    try:
        packed = base64.b64decode(text, validate=True)
        if zstandard.frame_content_size(packed) != nbytes:
            raise CorruptFileError(f"a mask of dropped unrolls is not of {count} unrolls")
        data = zstandard.decompress(packed)
    except (binascii.Error, zstandard.ZstdError) as error:
        raise CorruptFileError(f"a mask of dropped unrolls cannot be read: {error}") from None
    return np.unpackbits(np.frombuffer(data, np.uint8), count=count).astype(np.bool_)


def reservoir_at(
    stream: int, capacity: int, earlier: Sequence[Earlier], next_sequence: int
) -> tuple[Reservoir, np.ndarray]:
    """Return the index after `next_sequence` unrolls, and the sequence numbers [n] dropped on purpose before."""
    capacities = [*(each.capacity for each in earlier), capacity]
    reservoir, dropped = Reservoir(stream, capacities[0]), [np.empty(0, np.int64)]
    for each, following in zip(earlier, capacities[1:], strict=True):
        reservoir.advance(min(each.until, next_sequence))
        if each.forgotten:
            if next_sequence < each.until:
                raise CorruptFileError(
                    f"a replay shard cannot go back to sequence {next_sequence}: "
                    f"unrolls were dropped from it at {each.until}"
                )
            held = np.sort(reservoir.sequences)
            dropped.append(held[unpack_mask(each.forgotten, len(held))])
            reservoir.drop(dropped[-1])
        reservoir.resize(following)
    reservoir.advance(next_sequence)
    return reservoir, np.concatenate(dropped)
