"""Algorithms behind one seam; `make_method` builds one by name from a config."""

from __future__ import annotations

from clearl.config import RunConfig
from clearl.errors import UnknownNameError
from clearl.methods.baseline import baseline
from clearl.methods.clear import Clear
from clearl.methods.method import Method

BASES = ("baseline", "clear")
WRAPPERS = ()
NAMES = BASES


def make_method(config: RunConfig) -> Method:
    """The method called `config.method`: a base, or a wrapper around the baseline, or `wrapper+base`."""
    if config.method not in NAMES:
        raise UnknownNameError("method", config.method, NAMES)
    clear = Clear(
        policy_gradient_weight=config.policy_gradient_weight,
        value_weight=config.value_weight,
        entropy_weight=config.entropy_weight,
        policy_cloning_weight=config.policy_cloning_weight,
        value_cloning_weight=config.value_cloning_weight,
        replay_fraction=config.replay_fraction,
        rho_bar=config.rho_bar,
        c_bar=config.c_bar,
    )
    return clear if config.method == "clear" else baseline(clear)


__all__ = ["BASES", "NAMES", "WRAPPERS", "Clear", "Method", "baseline", "make_method"]
