"""The codec gives back every bit, and refuses everything else."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import zstandard

from clearl.errors import ConfigError, CorruptFileError
from clearl.replay import codec as codec_module
from clearl.replay.codec import Codec
from clearl.replay.framing import HEADER_NBYTES, open_record, pack_record, read_header
from clearl.spaces import discrete_spec
from clearl.unroll import UnrollLayout


def test_round_trip_is_exact(layout, make_row, equal):
    codec = Codec(layout)
    for seed in range(5):
        row = make_row(layout, seed)
        assert equal(codec.decode(codec.encode(row)), row)


def test_unpacking_writes_one_row_only(layout, make_row, equal):
    codec, rows = Codec(layout), layout.empty(3)
    row = make_row(layout, 1)
    codec.decode_each([codec.encode(row)], rows, [1])
    assert equal(rows[1], row)
    assert all(not array[[0, 2]].any() for array in rows.named().values())


def test_many_at_once_are_the_same_bytes_as_one_by_one(layout, make_row, equal, monkeypatch):
    monkeypatch.setattr(codec_module, "_AT_ONCE_NBYTES", 3 * Codec(layout).raw_nbytes)
    codec, rows, indices = Codec(layout), layout.empty(9), [7, 0, 3, 8, 1, 5, 2]
    for index in range(9):
        for name, array in make_row(layout, index).named().items():
            rows.named()[name][index] = array
    payloads = list(codec.encode_each(rows, indices))
    assert payloads == [Codec(layout).encode(make_row(layout, index)) for index in indices]
    back = layout.empty(9)
    codec.decode_each(payloads, back, indices)
    for index in indices:
        assert equal(back[index], make_row(layout, index))


def test_views_that_are_not_contiguous_are_encoded(layout, make_row, equal):
    row = make_row(layout, 2)
    named = row.named()
    strided = {
        name: np.repeat(array[None], 2, 0).swapaxes(0, -1)[..., 0] for name, array in named.items() if array.ndim
    }
    strided = {name: array.T.reshape(named[name].shape) for name, array in strided.items()}
    codec = Codec(layout)
    row = replace(row, **strided)
    assert equal(codec.decode(codec.encode(row)), row)


def test_the_format_is_what_version_1_says():
    """The fields in the layout's order, bools as bits: runs on disk depend on it."""
    layout = UnrollLayout(discrete_spec((2, 3, 4), "uint8", 9), 5)
    row = layout.empty(1)[0]
    row.frames[:] = np.arange(6 * 24, dtype=np.uint8).reshape(6, 2, 3, 4)
    row.first[:] = np.array([True, False, False, False, False, True])
    row.action[:] = np.arange(5)
    payload = Codec(layout).encode(row)
    assert payload[:5] == b"\x01" + Codec(layout).raw_nbytes.to_bytes(4, "little")
    raw = zstandard.ZstdDecompressor().decompress(payload[5:])
    assert raw[:144] == bytes(range(144))
    assert raw[144:145] == b"\x84" and raw[145:185] == np.arange(5).tobytes()


def test_bool_frames_cost_a_bit_each(make_row, layout):
    if layout.spec.observation.frame_dtype != "bool":
        assert Codec(layout).raw_nbytes > layout.fields["frames"].nbytes
        return
    assert Codec(layout).raw_nbytes < layout.nbytes / 4


def test_a_field_of_the_wrong_shape_or_dtype_is_refused(tiny, make_row):
    row = make_row(tiny, 0)
    with pytest.raises(ConfigError, match="'reward'"):
        Codec(tiny).encode(replace(row, reward=row.reward.astype(np.float64)))
    with pytest.raises(ConfigError, match="'action'"):
        Codec(tiny).encode(replace(row, action=row.action[:1]))


@pytest.mark.parametrize("length", [0, 1, 4, 5, 6, 20])
def test_a_cut_payload_is_refused(tiny, make_row, length):
    codec = Codec(tiny)
    with pytest.raises(CorruptFileError):
        codec.decode(codec.encode(make_row(tiny, 0))[:length])


def test_a_payload_cannot_make_us_allocate_more_than_an_unroll(tiny):
    codec = Codec(tiny)
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(200_000_000))
    lying = struct.pack("<BI", 1, codec.raw_nbytes) + bomb[: codec.max_nbytes - 5]
    honest = struct.pack("<BI", 1, 200_000_000) + bomb[: codec.max_nbytes - 5]
    unsized = struct.pack("<BI", 1, codec.raw_nbytes) + zstandard.ZstdCompressor(write_content_size=False).compress(
        bytes(codec.raw_nbytes)
    )
    tracemalloc.start()
    try:
        for payload in (lying, honest, unsized, bytes(codec.max_nbytes + 1)):
            with pytest.raises(CorruptFileError):
                codec.decode(payload)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_codec_that_has_seen_good_payloads_still_refuses_the_others(tiny, make_row):
    codec = Codec(tiny)
    good = codec.encode(make_row(tiny, 3))
    assert codec.check(good) == good == codec.check(memoryview(good))
    for place in range(11):  # our header; of zstd's the magic, the flags and the size
        bad = bytearray(good)
        bad[place] ^= 0x40
        with pytest.raises(CorruptFileError):
            codec.check(bytes(bad))
    with pytest.raises(CorruptFileError, match="out of range"):
        codec.check(good + bytes(codec.max_nbytes))
    with pytest.raises(CorruptFileError):
        codec.check(good[:7])


def test_two_frames_or_rubbish_behind_the_first_are_refused(tiny, make_row):
    codec = Codec(tiny)
    payload = codec.encode(make_row(tiny, 0))
    for extra in (b"x", payload[5:]):
        with pytest.raises(CorruptFileError):
            codec.decode(payload + extra)


def test_another_version_is_named(tiny, make_row):
    codec = Codec(tiny)
    with pytest.raises(CorruptFileError, match="version 2"):
        codec.decode(b"\x02" + codec.encode(make_row(tiny, 0))[1:])


def test_every_bit_flip_and_every_cut_of_a_record_is_detected(tiny, make_row):
    record = pack_record(3, 7, 99, Codec(tiny).encode(make_row(tiny, 0)))
    open_record(record, slot=3, sequence=7, number=99)
    for bit in range(8 * len(record)):
        flipped = bytearray(record)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptFileError):
            open_record(bytes(flipped), slot=3, sequence=7, number=99)
    for length in range(len(record)):
        with pytest.raises(CorruptFileError):
            open_record(record[:length], slot=3, sequence=7, number=99)


def test_a_record_of_another_place_is_refused():
    record = pack_record(3, 7, 99, b"payload")
    assert read_header(record, 0) is not None and len(record) == HEADER_NBYTES + 7
    for wrong in ({"slot": 4}, {"sequence": 8}, {"number": 98}):
        with pytest.raises(CorruptFileError, match="slot 3, sequence 7"):
            open_record(record, **{"slot": 3, "sequence": 7, "number": 99, **wrong})
