"""Rows are strict JSON, checked on the way in and on the way out."""

from __future__ import annotations

import json
import math
import zlib

import numpy as np
import pytest

from clearl.errors import CorruptFileError
from clearl.records.schema import (
    check_row,
    decode,
    encode,
    eval_row,
    fault_row,
    resume_row,
    segment_row,
    summary_row,
    train_row,
    unseal,
)


def _eval(**changes):
    fields = {"task": "breakout", "frames": 640, "mean_return": 1.5, "episodes": 16, "updates": 1, "wall_s": 0.25}
    return eval_row(**{**fields, **changes})


def _train(**changes):
    fields = {"tasks": ["a"], "frames": 640, "updates": 1, "fps": 1e4, "loss": {"value": 2.0}, "lag_updates": 0.5}
    return train_row(**{**fields, "replay": {"unrolls": 3}, "wall_s": 1.0, **changes})


def test_the_rows_have_the_keys_that_others_read():
    assert _eval() == {
        "v": 1,
        "kind": "eval",
        "task": "breakout",
        "frames": 640,
        "return": 1.5,
        "episodes": 16,
        "updates": 1,
        "wall_s": 0.25,
    }
    assert set(_train()) == {
        "v", "kind", "tasks", "frames", "updates", "fps", "loss", "lag_updates", "replay", "wall_s"
    }  # fmt: skip
    segment = segment_row(tasks=("a", "b"), start_frames=0, end_frames=None, index=2)
    assert segment == {
        "v": 1,
        "kind": "segment",
        "index": 2,
        "tasks": ["a", "b"],
        "weights": [0.5, 0.5],
        "end_weights": None,
        "start_frames": 0,
        "end_frames": None,
    }


def test_optional_keys_are_there_only_when_said():
    assert _eval(std=0.5, column="knowledge_base")["column"] == "knowledge_base"
    assert "column" not in _eval() and "std" not in _eval()
    assert _train(extra={"grad_norm": 3.0, "frames": -1}) == {**_train(), "grad_norm": 3.0}


@pytest.mark.parametrize(
    "row",
    [
        _eval(),
        _train(),
        segment_row(tasks=["a"], start_frames=0, end_frames=10, index=0),
        fault_row(frames=1, worker="worker-0", problem="it died", wall_s=1.0),
        resume_row(frames=1, updates=2, wall_s=3.0),
        summary_row({"note": "ünicode", "deep": {"a": [1, {"b": {}}]}}),
    ],
    ids=lambda row: row["kind"],
)
def test_every_kind_survives_the_way_to_disk_and_back(row):
    check_row(row)
    line = encode(row)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert decode(line) == row


def test_numbers_that_are_not_finite_become_null():
    row = decode(encode(_train(loss={"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0})))
    assert row["loss"] == {"a": None, "b": None, "c": None, "d": 1.0}
    assert decode(encode(_eval(mean_return=math.nan)))["return"] is None


def test_numpy_scalars_and_arrays_are_unpacked():
    row = decode(encode(_train(frames=np.int64(7), fps=np.float32(2.5), replay={"per_slot": np.arange(3)})))
    assert (row["frames"], row["fps"], row["replay"]) == (7, 2.5, {"per_slot": [0, 1, 2]})


def test_what_json_has_no_word_for_is_refused():
    with pytest.raises(TypeError, match="object has no place"):
        encode(summary_row({"what": object()}))


def test_every_flipped_bit_is_noticed_or_harmless():
    row = _train()
    line = encode(row)
    for index in range(len(line) - 1):
        for bit in range(8):
            damaged = bytearray(line)
            damaged[index] ^= 1 << bit
            try:
                read = decode(bytes(damaged))
            except CorruptFileError:
                continue
            # Only the name of the checksum itself may change unnoticed: the row's own entries are all there.
            assert {key: read[key] for key in row} == row and len(read) <= len(row) + 1


def test_rows_of_other_programs_need_no_checksum():
    row = _eval()
    assert decode(json.dumps(row).encode()) == row


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": 2}, "schema version 2"),
        ({"kind": None}, "needs a kind"),
        ({"frames": "many"}, "'frames'.*'many'"),
        ({"episodes": True}, "'episodes'.*True"),
        ({"task": None}, "'task'.*None"),
    ],
)
def test_a_row_that_breaks_the_schema_is_refused(change, message):
    with pytest.raises(CorruptFileError, match=message):
        check_row({**_eval(), **change})


def test_a_missing_key_is_named():
    row = _eval()
    del row["updates"]
    with pytest.raises(CorruptFileError, match="needs the key 'updates'"):
        check_row(row)


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b'{"v":NaN}', b"\xff\xfe", b"[" * 100_000])
def test_lines_that_are_no_rows_are_refused(line):
    with pytest.raises(CorruptFileError):
        decode(line)


@pytest.mark.parametrize("sealed", [b'{"v":1,"kind":"note","crc":"%08x"}', b'{\n  "v": 1,"crc":"%08x"}\n'])
def test_every_single_flip_of_a_sealed_object_is_noticed(sealed):
    head = sealed[: sealed.index(b'"crc"')]
    data = sealed % zlib.crc32(head)
    whole = unseal(data)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert unseal(bytes(damaged)) == whole
        except CorruptFileError:
            continue
