"""Layouts of every dtype, and unrolls that can be told apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from clearl.spaces import discrete_spec
from clearl.unroll import Unroll, UnrollLayout

LAYOUTS = {
    "atari": UnrollLayout(discrete_spec((1, 84, 84), "uint8", 18, stack=4, frames_per_step=4), 20),
    "minatar": UnrollLayout(discrete_spec((10, 10, 10), "bool", 6), 20),
    "flat": UnrollLayout(discrete_spec((5,), "float32", 3, stack=2), 7, core_size=8),
    "tiny": UnrollLayout(discrete_spec((3,), "uint8", 2), 2),
}


def random_row(layout: UnrollLayout, seed: int) -> Unroll:
    """An unroll of random bits; floats may be anything, NaN and -0.0 included."""
    rng = np.random.default_rng(seed)
    row: dict[str, np.ndarray] = {}
    for name, field in layout.fields.items():
        if field.dtype == "bool":
            row[name] = rng.random(field.shape) < 0.5
        else:
            row[name] = np.frombuffer(rng.bytes(field.nbytes), field.dtype).reshape(field.shape)
    return Unroll(**row)


def same(a: Unroll, b: Unroll) -> bool:
    """Return whether two unrolls are equal, bit for bit."""
    pairs = zip(a.named().values(), b.named().values(), strict=True)
    return all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in pairs)


@pytest.fixture(params=list(LAYOUTS))
def layout(request: pytest.FixtureRequest) -> UnrollLayout:
    return LAYOUTS[request.param]


@pytest.fixture
def tiny() -> UnrollLayout:
    return LAYOUTS["tiny"]


@pytest.fixture
def make_row() -> Callable[[UnrollLayout, int], Unroll]:
    return random_row


@pytest.fixture
def equal() -> Callable[[Unroll, Unroll], bool]:
    return same
