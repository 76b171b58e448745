"""The paper's baseline: the same actor-critic, on new experience only."""

from __future__ import annotations

from dataclasses import replace

from clearl.methods.clear import Clear


def baseline(clear: Clear) -> Clear:
    """`clear` with no replay. The cloning terms are then sums over nothing, and exactly zero."""
    return replace(clear, replay_fraction=0.0)
