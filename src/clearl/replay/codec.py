"""An unroll as bytes and back, exactly: bools as bits, everything else as it is, compressed with zstd."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import zstandard

from clearl.errors import ConfigError, CorruptFileError
from clearl.growth import Growth
from clearl.unroll import Payload, Unroll, UnrollLayout

_VERSION = 1
_HEADER = struct.Struct("<BI")  # version, bytes of the unroll before compression
_SMALL_NBYTES = 1 << 16  # level -1 makes the same of so little as level 1 (MinAtar: 791 bytes), in half the time
_AT_ONCE_NBYTES = 1 << 18  # this much stays in the cache between packing and compressing

T = TypeVar("T")


def _payload_dtype(layout: UnrollLayout) -> np.dtype:
    """Return the uncompressed payload: the fields of an unroll one after the other, bools eight to a byte."""
    formats: list[tuple[str, np.dtype, tuple[int, ...]]] = []
    for name, field in layout.fields.items():
        dtype = np.dtype(field.dtype)
        if dtype == np.bool_:
            bits = int(np.prod(field.shape, dtype=np.int64))
            formats.append((name, np.dtype(np.uint8), (-(-bits // 8),)))
        else:
            formats.append((name, dtype, field.shape))
    return np.dtype(formats)


def max_payload_nbytes(layout: UnrollLayout) -> int:
    """Return the longest payload of this layout: zstd's bound for data that cannot be compressed, and the header."""
    raw_nbytes = _payload_dtype(layout).itemsize
    return _HEADER.size + raw_nbytes + (raw_nbytes >> 8) + 1024


@dataclass(frozen=True)
class _Part:
    """One field of an unroll, as it is packed."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    bits: int
    """The bools that are packed here; 0 for a field of another kind."""


class Codec:
    """Encodes the unrolls of one layout. It keeps its buffers, so it serves one thread at a time.

    Many unrolls are packed at once, field by field: with small frames NumPy's calls cost more than the bytes.
    """

    def __init__(self, layout: UnrollLayout, earlier: Sequence[UnrollLayout] = ()) -> None:
        """`earlier`: layouts that the run had before its spaces grew, whose payloads are padded when they are read."""
        self.layout = layout
        self._dtype = _payload_dtype(layout)
        self._parts = [
            _Part(
                name, field.shape, np.dtype(field.dtype),
                int(np.prod(field.shape, dtype=np.int64)) if np.dtype(field.dtype) == np.bool_ else 0,
            )
            for name, field in layout.fields.items()
        ]  # fmt: skip
        self.raw_nbytes, self.max_nbytes = self._dtype.itemsize, max_payload_nbytes(layout)
        self._earlier = {codec.raw_nbytes: codec for codec in map(Codec, earlier)}
        if len({self.raw_nbytes, *self._earlier}) <= len(earlier):
            raise ConfigError(
                "the agent cannot grow to the next tasks: its unrolls are so short that those of the old spaces take "
                "as many bytes as the new ones"
            )
        self._scratch = np.zeros(max(1, _AT_ONCE_NBYTES // self.raw_nbytes), self._dtype)
        # A memoryview of the fields themselves would have to describe each of them, for every unroll anew.
        self._scratch_bytes = self._scratch.view(np.uint8).data
        level = -1 if self.raw_nbytes <= _SMALL_NBYTES else 1
        self._compressor = zstandard.ZstdCompressor(level=level, write_content_size=True)
        # One-shot decompression allocates the declared size, which `check` has compared with the layout's.
        self._decompressor = zstandard.ZstdDecompressor()
        # All payloads of a layout begin alike: with our header, and zstd's, which declares the same size each time.
        sample = self._compressor.compress(bytes(self.raw_nbytes))
        head = zstandard.frame_header_size(sample)
        self._beginning = _HEADER.pack(_VERSION, self.raw_nbytes) + sample[:head]

    def encode(self, row: Unroll) -> bytes:
        """Return one unroll, its fields without a slot axis, as a payload."""
        (payload,) = self.encode_each(row[None], [0])
        return payload

    def encode_each(self, rows: Unroll, indices: Sequence[int]) -> Iterator[bytes]:
        """Yield the payloads of the unrolls in `rows` at `indices`, in that order."""
        arrays = rows.named()
        self._check(arrays)
        head = _HEADER.pack(_VERSION, self.raw_nbytes)
        for some in self._chunks(indices):
            places, packed = _places(some), self._scratch[: len(some)]
            for part in self._parts:
                values = arrays[part.name][places]
                packed[part.name] = np.packbits(values.reshape(len(some), -1), axis=1) if part.bits else values
            for start in range(0, len(some) * self.raw_nbytes, self.raw_nbytes):
                yield head + self._compressor.compress(self._scratch_bytes[start : start + self.raw_nbytes])

    def decode(self, payload: Payload) -> Unroll:
        """Return the unroll in `payload`, in new arrays."""
        rows = self.layout.empty(1)
        self.decode_each([payload], rows, [0])
        return rows[0]

    def decode_each(self, payloads: Sequence[Payload], rows: Unroll, indices: Sequence[int]) -> None:
        """Write the unrolls in `payloads` to `rows` at `indices`."""
        if self._earlier:
            payloads, indices = self._decode_earlier(payloads, rows, indices)
        arrays = rows.named()
        for some, many in zip(self._chunks(indices), self._chunks(payloads), strict=True):
            places = _places(some)
            packed = np.frombuffer(b"".join([self._decompress(payload) for payload in many]), self._dtype)
            for part in self._parts:
                values = packed[part.name]
                if part.bits:
                    bools = np.unpackbits(values, axis=1, count=part.bits).view(np.bool_)
                    values = bools.reshape(len(some), *part.shape)
                arrays[part.name][places] = values

    def _decode_earlier(
        self, payloads: Sequence[Payload], rows: Unroll, indices: Sequence[int]
    ) -> tuple[list[Payload], list[int]]:
        """Write unrolls of earlier layouts to `rows`; return the payloads that are left, and where they belong."""
        left: list[tuple[Payload, int]] = []
        for payload, index in zip(payloads, indices, strict=True):
            codec = self._earlier.get(_raw_nbytes(payload))
            if codec is None:
                left.append((payload, index))
                continue
            grown = Growth(codec.layout.spec, self.layout.spec).unroll(codec.decode(payload))
            for name, array in grown.named().items():
                rows.named()[name][index] = array
        return [payload for payload, _ in left], [index for _, index in left]

    def check(self, payload: Payload) -> Payload:
        """Return the payload; raise an error if it is not one of this layout. The compressed part is not checked."""
        if payload[: len(self._beginning)] == self._beginning and len(payload) <= self.max_nbytes:
            return payload
        if len(payload) < _HEADER.size or len(payload) > self.max_nbytes:
            raise CorruptFileError(f"a replay payload of {len(payload)} bytes is out of range for this layout")
        version, raw_nbytes = _HEADER.unpack_from(payload)
        if raw_nbytes in self._earlier:
            return self._earlier[raw_nbytes].check(payload)
        if version != _VERSION:
            raise CorruptFileError(f"a replay payload has version {version}, this clearl reads version {_VERSION}")
        try:
            declared = zstandard.frame_content_size(memoryview(payload)[_HEADER.size :])
        except zstandard.ZstdError as error:
            raise CorruptFileError(f"a replay payload cannot be decompressed: {error}") from error
        if raw_nbytes != self.raw_nbytes or declared != self.raw_nbytes:
            raise CorruptFileError(
                f"a replay payload says that it holds {raw_nbytes} and {declared} bytes; "
                f"an unroll of this layout has {self.raw_nbytes}"
            )
        return payload

    def _decompress(self, payload: Payload) -> bytes:
        try:
            compressed = memoryview(self.check(payload))[_HEADER.size :]
            return self._decompressor.decompress(compressed, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise CorruptFileError(f"a replay payload cannot be decompressed: {error}") from error

    def _check(self, arrays: Mapping[str, np.ndarray]) -> None:
        for part in self._parts:
            array = arrays[part.name]
            if array.shape[1:] != part.shape or array.dtype != part.dtype:
                raise ConfigError(
                    f"the unroll's field {part.name!r} is {array.dtype}{array.shape[1:]}, its layout says "
                    f"{part.dtype}{part.shape}; fill the arrays that UnrollLayout.empty gives"
                )

    def _chunks(self, items: Sequence[T]) -> Iterator[list[T]]:
        for start in range(0, len(items), len(self._scratch)):
            yield list(items[start : start + len(self._scratch)])


def _raw_nbytes(payload: Payload) -> int:
    return _HEADER.unpack_from(payload)[1] if len(payload) >= _HEADER.size else 0


def _places(indices: list[int]) -> slice | list[int]:
    """Return adjacent indices as a slice, which NumPy indexes much faster."""
    side_by_side = range(indices[0], indices[0] + len(indices))
    return slice(side_by_side.start, side_by_side.stop) if indices == list(side_by_side) else indices
