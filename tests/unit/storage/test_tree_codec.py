from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearl.errors import CorruptFileError
from clearl.seeding import generator
from clearl.storage.tree_codec import decode_arrays, decode_json, encode_tree

NUMPY_DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY_DTYPES += ["float16", "float32", "float64", "complex64"]
TORCH_DTYPES = [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float16, torch.float32, torch.float64]


def round_trip(tree: dict) -> dict:
    text, arrays = encode_tree(tree)
    return decode_arrays(*decode_json(text), arrays)


def assert_same(a: object, b: object) -> None:
    if isinstance(a, dict):
        assert isinstance(b, dict) and a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert isinstance(b, list) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, np.ndarray):
        assert isinstance(b, np.ndarray) and (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()
    elif isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor) and (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.numel() == 0 or torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
    else:
        assert type(a) is type(b) and (a == b or a != a)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_numpy_arrays_come_back_as_they_were(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.asarray(generator(1, "codec").integers(0, 256, shape)).astype(dtype)
    assert_same({"a": array}, round_trip({"a": array}))


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_tensors_come_back_as_tensors(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.full(shape, 1).to(dtype)
    assert_same([tensor], round_trip({"a": [tensor]})["a"])


def test_views_strides_and_byte_orders_do_not_matter() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    found = round_trip({"view": base.T, "same": base, "big": np.arange(3, dtype=">i4"), "back": np.arange(5)[::-1]})
    assert torch.equal(found["view"], base.T) and torch.equal(found["same"], base)
    assert found["big"].tolist() == [0, 1, 2] and found["back"].tolist() == [4, 3, 2, 1, 0]


def test_random_states_go_through_exactly() -> None:
    rng = np.random.Generator(np.random.PCG64(7))
    old = np.random.RandomState(7)
    _, key, position, has_gauss, cached = old.get_state()
    tree = {"pcg": rng.bit_generator.state, "mt": [np.asarray(key), position, has_gauss, cached]}
    found = round_trip(tree)
    assert found["pcg"]["state"]["state"] > 1 << 64
    again = np.random.Generator(np.random.PCG64(0))
    again.bit_generator.state = found["pcg"]
    assert again.random(5).tolist() == rng.random(5).tolist()
    old_again = np.random.RandomState(0)
    old_again.set_state(("MT19937", *found["mt"]))
    assert old_again.rand(5).tolist() == old.rand(5).tolist()


def test_what_comes_back_can_be_written_to() -> None:
    found = round_trip({"n": np.zeros(2), "t": torch.zeros(2)})
    found["n"][0], found["t"][0] = 1, 1
    assert found["n"].tolist() == found["t"].tolist() == [1, 0]


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
arrays = st.builds(np.full, st.lists(st.integers(0, 3), max_size=3), st.integers(0, 9), st.sampled_from(NUMPY_DTYPES))
tensors = arrays.map(torch.from_numpy)
trees = st.recursive(
    leaves | arrays | tensors,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=4), trees, max_size=4))
def test_any_tree_comes_back(tree: dict) -> None:
    assert_same(tree, round_trip(tree))


@pytest.mark.parametrize("value", [np.float32(1), object(), {1: 2}, {"a", "b"}, b"bytes", np.array(["text"])])
def test_what_is_neither_json_nor_array_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        encode_tree({"a": value})


HOSTILE_BODIES = [
    b"",
    b"\x80\x04N.",
    b"[]",
    b"[" * 200_000,
    b'{"tree": {}}',
    b'{"tree": {}, "arrays": [], "more": 1}',
    b'{"tree": [], "arrays": []}',
    b'{"tree": {}, "arrays": {}}',
    b'{"tree": {"a": 1' + b"0" * 5000 + b'}, "arrays": []}',
]


@pytest.mark.parametrize("data", HOSTILE_BODIES, ids=range(len(HOSTILE_BODIES)))
def test_hostile_json_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        decode_json(data)


HOSTILE_PLACES = [
    "x",
    {"name": "0:a", "path": ["a"]},
    {"name": "0:a", "path": ["a"], "kind": "pickle"},
    {"name": "0:a", "path": ["a"], "kind": "numpy", "more": 0},
    {"name": "other", "path": ["a"], "kind": "numpy"},
    {"name": ["0:a"], "path": ["a"], "kind": "numpy"},
    {"name": "0:a", "path": ["b"], "kind": "numpy"},
    {"name": "0:a", "path": ["full"], "kind": "numpy"},
    {"name": "0:a", "path": ["text", 0], "kind": "numpy"},
    {"name": "0:a", "path": ["list", 9], "kind": "numpy"},
    {"name": "0:a", "path": ["list", True], "kind": "numpy"},
    {"name": "0:a", "path": [], "kind": "numpy"},
    {"name": "0:a", "path": "a", "kind": "numpy"},
]


@pytest.mark.parametrize("place", HOSTILE_PLACES, ids=str)
def test_hostile_places_are_refused(place: object) -> None:
    _, arrays = encode_tree({"a": np.arange(3)})
    body = {"tree": {"a": None, "full": 1, "text": "xy", "list": [None]}, "arrays": [place]}
    with pytest.raises(CorruptFileError):
        decode_arrays(*decode_json(json.dumps(body).encode()), arrays)


def test_an_array_without_a_place_or_in_two_places_is_refused() -> None:
    _, arrays = encode_tree({"a": np.arange(3)})
    place = {"name": "0:a", "path": ["a"], "kind": "numpy"}
    for tree, places in [({"a": None}, []), ({"a": None, "b": None}, [place, {**place, "path": ["b"]}])]:
        with pytest.raises(CorruptFileError):
            decode_arrays(tree, places, arrays)


def test_random_damage_to_the_arrays_is_refused_or_changes_numbers_only() -> None:
    """Without the manifest a flip may change a number; it must never be anything but numbers or a refusal."""
    text, arrays = encode_tree({"a": np.arange(30.0), "b": torch.ones(3, 4)})
    rng = random.Random(3)
    for _ in range(2000):
        data = bytearray(arrays)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        try:
            found = decode_arrays(*decode_json(text), bytes(data))
        except CorruptFileError:
            continue
        assert isinstance(found["a"], np.ndarray) and isinstance(found["b"], torch.Tensor)
