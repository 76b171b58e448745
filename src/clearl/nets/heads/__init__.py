"""Policy heads: from features to distributions over actions."""

from __future__ import annotations

from clearl.nets.heads.categorical import CategoricalHead
from clearl.nets.heads.gaussian import GaussianHead, StdSettings
from clearl.nets.heads.head import Distribution, Head
from clearl.nets.heads.joint import JointHead
from clearl.nets.heads.multi_categorical import MultiCategoricalHead
from clearl.spaces import ActionSpec


def make_head(action: ActionSpec, std: StdSettings | None = None) -> Head:
    """Build the head for actions of this spec; `std` applies to real numbers."""
    if action.is_discrete:
        return CategoricalHead(action)
    if not action.bounded:
        return MultiCategoricalHead(action)
    std = std or StdSettings()
    return JointHead(action, std) if action.choices else GaussianHead(action, std)


__all__ = ["Distribution", "Head", "StdSettings", "make_head"]
