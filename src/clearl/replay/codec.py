"""An unroll as bytes and back, exactly: bools as bits, everything else as it is, compressed with zstd level 1."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import zstandard

from clearl.errors import ConfigError, CorruptFileError
from clearl.types import Field, Rows, UnrollLayout

_VERSION = 1
_HEADER = struct.Struct("<BI")  # version, bytes of the unroll before compression


@dataclass(frozen=True)
class _Part:
    """Where one field of an unroll lies in the uncompressed payload."""

    field: Field
    dtype: np.dtype
    count: int
    start: int
    stop: int

    @property
    def packed(self) -> bool:
        return self.dtype == np.bool_


def _parts(layout: UnrollLayout) -> dict[str, _Part]:
    parts, offset = {}, 0
    for name, field in layout.fields.items():
        count = int(np.prod(field.shape, dtype=np.int64))
        dtype = np.dtype(field.dtype)
        size = -(-count // 8) if dtype == np.bool_ else field.nbytes
        parts[name] = _Part(field, dtype, count, offset, offset + size)
        offset += size
    return parts


class Codec:
    """Encodes the unrolls of one layout. It keeps its buffers, so it serves one thread at a time."""

    def __init__(self, layout: UnrollLayout) -> None:
        self.layout = layout
        self._parts = _parts(layout)
        self.raw_nbytes = max(part.stop for part in self._parts.values())
        self._scratch = np.empty(self.raw_nbytes, np.uint8)
        self._compressor = zstandard.ZstdCompressor(level=1, write_content_size=True)
        # One-shot decompression allocates the declared size, which `_decompress` has compared with the layout's.
        self._decompressor = zstandard.ZstdDecompressor()

    @property
    def max_nbytes(self) -> int:
        """No payload of this layout is longer: zstd's bound for data that cannot be compressed, and the header."""
        return _HEADER.size + self.raw_nbytes + (self.raw_nbytes >> 8) + 1024

    def encode(self, row: Rows) -> bytes:
        """One unroll, its fields without a slot axis, as a payload."""
        for name, part in self._parts.items():
            array = row[name]
            if array.shape != part.field.shape or array.dtype != part.dtype:
                raise ConfigError(
                    f"the unroll's field {name!r} is {array.dtype}{array.shape}, its layout says "
                    f"{part.dtype}{part.field.shape}; fill the arrays that UnrollLayout.empty gives"
                )
            target = self._scratch[part.start : part.stop]
            if part.packed:
                target[...] = np.packbits(array.reshape(-1))
            else:
                target.view(part.dtype).reshape(part.field.shape)[...] = array
        return _HEADER.pack(_VERSION, self.raw_nbytes) + self._compressor.compress(self._scratch.data)

    def decode(self, payload: bytes | memoryview) -> Rows:
        """The unroll in `payload`, in new arrays."""
        rows = self.layout.empty(1)
        self.decode_into(payload, rows, 0)
        return {name: array[0] for name, array in rows.items()}

    def decode_into(self, payload: bytes | memoryview, rows: Rows, index: int) -> None:
        """The unroll in `payload`, written to `rows` at `index`; nothing is written if the payload is damaged."""
        raw = self._decompress(memoryview(payload))
        for name, part in self._parts.items():
            if part.packed:
                bits = np.frombuffer(raw, np.uint8, part.stop - part.start, part.start)
                rows[name][index] = np.unpackbits(bits, count=part.count).view(np.bool_).reshape(part.field.shape)
            else:
                values = np.frombuffer(raw, part.dtype, part.count, part.start)
                rows[name][index] = values.reshape(part.field.shape)

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
