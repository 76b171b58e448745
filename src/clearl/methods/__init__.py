"""Algorithms behind one seam; `make_method` builds one by name from a config."""

from __future__ import annotations

from collections.abc import Callable

from clearl.config import RunConfig
from clearl.errors import UnknownNameError
from clearl.methods.baseline import baseline
from clearl.methods.clear import Clear
from clearl.methods.ewc import Ewc, OnlineEwc
from clearl.methods.method import Method
from clearl.methods.progress_compress import ProgressCompress
from clearl.seeding import derive


def _clear(config: RunConfig) -> Clear:
    return Clear(
        policy_gradient_weight=config.policy_gradient_weight,
        value_weight=config.value_weight,
        entropy_weight=config.entropy_weight,
        policy_cloning_weight=config.policy_cloning_weight,
        value_cloning_weight=config.value_cloning_weight,
        replay_fraction=config.replay_fraction,
        rho_bar=config.rho_bar,
        c_bar=config.c_bar,
    )


def _ewc(base: Method, config: RunConfig) -> Method:
    seed = derive(config.seed, "method")
    return Ewc(base, lam=config.ewc_lambda, fisher_batches=config.fisher_batches, seed=seed)


def _online_ewc(base: Method, config: RunConfig) -> Method:
    return OnlineEwc(
        base,
        lam=config.online_ewc_lambda,
        gamma=config.ewc_gamma,
        fisher_batches=config.fisher_batches,
        seed=derive(config.seed, "method"),
    )


def _progress_compress(base: Method, config: RunConfig) -> Method:
    return ProgressCompress(
        base,
        lam=config.online_ewc_lambda,
        gamma=config.ewc_gamma,
        fisher_batches=config.fisher_batches,
        compress_frames=config.compress_frames,
        temperature=config.compress_temperature,
        reset_active=config.reset_active,
        seed=derive(config.seed, "method"),
    )


BASES: dict[str, Callable[[RunConfig], Method]] = {
    "baseline": lambda config: baseline(_clear(config)),
    "clear": _clear,
}
WRAPPERS: dict[str, Callable[[Method, RunConfig], Method]] = {
    "ewc": _ewc,
    "online-ewc": _online_ewc,
    "progress-compress": _progress_compress,
}
NAMES = (*BASES, *WRAPPERS, *(f"{wrapper}+clear" for wrapper in WRAPPERS))


def make_method(config: RunConfig) -> Method:
    """The method called `config.method`: a base, a wrapper around the baseline, or `wrapper+clear`."""
    if config.method not in NAMES:
        raise UnknownNameError("method", config.method, NAMES)
    name, _, base = config.method.partition("+")
    if name in BASES:
        return BASES[name](config)
    return WRAPPERS[name](BASES[base or "baseline"](config), config)


__all__ = [
    "BASES", "NAMES", "WRAPPERS", "Clear", "Ewc", "Method", "OnlineEwc", "ProgressCompress", "baseline", "make_method",
]  # fmt: skip
