"""A policy that collapses is told of once, with what helps; a healthy or a shaky one is not."""

from __future__ import annotations

import pytest

from clearl.records import train_row
from clearl.records.collapse import ROWS, CollapseWatch


def _row(frames: int, *, entropy: float = 0.5, grad_norm: float = 10.0):
    return train_row(
        tasks=["a"], frames=frames, updates=1, fps=1.0, loss={"entropy": -entropy * 100}, lag_updates=0.0, replay={},
        wall_s=0.0, extra={"grad_norm": grad_norm},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sick", "said"), [({"entropy": 1e-6}, "deterministic"), ({"grad_norm": 2.6e10}, "gradients reach 3e+10")]
)
def test_a_collapse_is_told_once_with_its_remedy(sick: dict[str, float], said: str):
    told: list[str] = []
    watch = CollapseWatch(100, told.append)
    for frames in range(ROWS - 1):
        watch.update(_row(frames, **sick))
    watch.update(_row(50))
    assert told == [], "it recovered"
    for frames in range(100, 120):
        watch.update(_row(frames, **sick))
    (line,) = told
    assert said in line and "--learning-rate" in line and "frame 104" in line


def test_what_is_diagnosed_goes_before_the_loss():
    told: list[str] = []
    watch = CollapseWatch(100, told.append)
    for frames in range(20):
        watch.update({**_row(frames, entropy=0.0), "diagnostics": {"new": {"entropy": 0.4}}})
    assert told == []


def test_real_numbers_have_no_least_entropy():
    told: list[str] = []
    watch = CollapseWatch(100, told.append, least_entropy=None)
    for frames in range(20):
        watch.update({**_row(frames, entropy=0.0), "diagnostics": {"new": {"entropy": -1.5}}})
    assert told == []
    for frames in range(20):
        watch.update(_row(frames, grad_norm=1e8))
    assert len(told) == 1
