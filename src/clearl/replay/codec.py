"""An unroll as bytes and back, exactly: bools as bits, everything else as it is, compressed with zstd level 1."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import zstandard

from clearl.errors import ConfigError, CorruptFileError
from clearl.types import Rows, UnrollLayout

_VERSION = 1
_HEADER = struct.Struct("<BI")  # version, bytes of the unroll before compression


def _payload_dtype(layout: UnrollLayout) -> np.dtype:
    """The uncompressed payload: the fields of an unroll one after the other, bools eight to a byte."""
    formats: list[tuple[str, np.dtype, tuple[int, ...]]] = []
    for name, field in layout.fields.items():
        dtype = np.dtype(field.dtype)
        if dtype == np.bool_:
            bits = int(np.prod(field.shape, dtype=np.int64))
            formats.append((name, np.dtype(np.uint8), (-(-bits // 8),)))
        else:
            formats.append((name, dtype, field.shape))
    return np.dtype(formats)


@dataclass(frozen=True)
class _Part:
    """One field of an unroll, and its place in the uncompressed payload of a codec."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    bits: int
    """How many bools are packed here; 0 for a field of another kind."""
    place: np.ndarray


class Codec:
    """Encodes the unrolls of one layout. It keeps its buffers, so it serves one thread at a time."""

    def __init__(self, layout: UnrollLayout) -> None:
        self.layout = layout
        self._dtype = _payload_dtype(layout)
        self._scratch = np.zeros(1, self._dtype)
        self._parts = [
            _Part(
                name, field.shape, np.dtype(field.dtype),
                int(np.prod(field.shape, dtype=np.int64)) if np.dtype(field.dtype) == np.bool_ else 0,
                self._scratch[name],
            )
            for name, field in layout.fields.items()
        ]  # fmt: skip
        self.raw_nbytes = self._dtype.itemsize
        self._compressor = zstandard.ZstdCompressor(level=1, write_content_size=True)
        # One-shot decompression allocates the declared size, which `_decompress` has compared with the layout's.
        self._decompressor = zstandard.ZstdDecompressor()

    @property
    def max_nbytes(self) -> int:
        """No payload of this layout is longer: zstd's bound for data that cannot be compressed, and the header."""
        return _HEADER.size + self.raw_nbytes + (self.raw_nbytes >> 8) + 1024

    def encode(self, row: Rows) -> bytes:
        """One unroll, its fields without a slot axis, as a payload."""
        for part in self._parts:
            array = row[part.name]
            if array.shape != part.shape or array.dtype != part.dtype:
                raise ConfigError(
                    f"the unroll's field {part.name!r} is {array.dtype}{array.shape}, its layout says "
                    f"{part.dtype}{part.shape}; fill the arrays that UnrollLayout.empty gives"
                )
            part.place[0] = np.packbits(array) if part.bits else array
        return _HEADER.pack(_VERSION, self.raw_nbytes) + self._compressor.compress(self._scratch.data)

    def decode(self, payload: bytes | memoryview) -> Rows:
        """The unroll in `payload`, in new arrays."""
        rows = self.layout.empty(1)
        self.decode_into(payload, rows, 0)
        return {name: array[0] for name, array in rows.items()}

    def decode_into(self, payload: bytes | memoryview, rows: Rows, index: int) -> None:
        """The unroll in `payload`, written to `rows` at `index`; nothing is written if the payload is damaged."""
        raw = np.frombuffer(self._decompress(memoryview(payload)), self._dtype)
        for part in self._parts:
            values = raw[part.name][0]
            if part.bits:
                values = np.unpackbits(values, count=part.bits).view(np.bool_).reshape(part.shape)
            rows[part.name][index] = values

    def _decompress(self, payload: memoryview) -> bytes:
        if len(payload) < _HEADER.size or len(payload) > self.max_nbytes:
            raise CorruptFileError(f"a replay payload of {len(payload)} bytes is out of range for this layout")
        version, raw_nbytes = _HEADER.unpack_from(payload)
        if version != _VERSION:
            raise CorruptFileError(f"a replay payload has version {version}, this clearl reads version {_VERSION}")
        compressed = payload[_HEADER.size :]
        try:
            declared = zstandard.get_frame_parameters(compressed).content_size
            if raw_nbytes != self.raw_nbytes or declared != self.raw_nbytes:
                raise CorruptFileError(
                    f"a replay payload says that it holds {raw_nbytes} and {declared} bytes; "
                    f"an unroll of this layout has {self.raw_nbytes}"
                )
            return self._decompressor.decompress(compressed, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise CorruptFileError(f"a replay payload cannot be decompressed: {error}") from error
