"""Policy heads: from features to distributions over actions."""

from __future__ import annotations

from clearl.nets.heads.categorical import CategoricalHead
from clearl.nets.heads.head import Distribution, Head
from clearl.spaces import ActionSpec


def make_head(action: ActionSpec) -> Head:
    """The head for actions of this spec."""
    return CategoricalHead(action)


__all__ = ["Distribution", "Head", "make_head"]
