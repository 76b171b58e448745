"""The paper's baseline: the same actor-critic, on new experience only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from clearl.config import RunConfig
from clearl.methods.clear import Clear


@dataclass(frozen=True)
class Baseline(Clear):
    """CLEAR without replay. The cloning terms are then sums over nothing, and exactly zero."""

    label: ClassVar[str] = "Baseline"
    replay_fraction: float = 0.0

    @classmethod
    def from_config(cls, config: RunConfig) -> Clear:
        return replace(super().from_config(config), replay_fraction=0.0)
