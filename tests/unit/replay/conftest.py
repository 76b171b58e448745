"""Layouts of every dtype, and unrolls that can be told apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from clearl.types import EnvSpec, Rows, UnrollLayout

LAYOUTS = {
    "atari": UnrollLayout(EnvSpec((1, 84, 84), "uint8", 18, stack=4, frames_per_step=4), 20),
    "minatar": UnrollLayout(EnvSpec((10, 10, 10), "bool", 6), 20),
    "flat": UnrollLayout(EnvSpec((5,), "float32", 3, stack=2), 7, core_size=8),
    "tiny": UnrollLayout(EnvSpec((3,), "uint8", 2), 2),
}


def random_row(layout: UnrollLayout, seed: int) -> Rows:
    """An unroll of random bits; floats may be anything, NaN and -0.0 included."""
    rng = np.random.default_rng(seed)
    row: Rows = {}
    for name, field in layout.fields.items():
        if field.dtype == "bool":
            row[name] = rng.random(field.shape) < 0.5
        else:
            row[name] = np.frombuffer(rng.bytes(field.nbytes), field.dtype).reshape(field.shape)
    return row


def same(a: Rows, b: Rows) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a
    )


@pytest.fixture(params=list(LAYOUTS))
def layout(request: pytest.FixtureRequest) -> UnrollLayout:
    return LAYOUTS[request.param]


@pytest.fixture
def tiny() -> UnrollLayout:
    return LAYOUTS["tiny"]


@pytest.fixture
def make_row() -> Callable[[UnrollLayout, int], Rows]:
    return random_row


@pytest.fixture
def equal() -> Callable[[Rows, Rows], bool]:
    return same
