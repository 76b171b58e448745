"""Elastic weight consolidation (Kirkpatrick 2017) and online EWC (Schwarz 2018), around any base method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from torch import Tensor

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.methods.anchors import Anchors, OnlineAnchor, TaskAnchors, select
from clearl.methods.consolidation import Consolidation, FisherOptions, fisher_options
from clearl.methods.method import Method, Wrapper
from clearl.methods.settings import EwcSettings, OnlineEwcSettings
from clearl.nets.growth import NetworkGrowth
from clearl.nets.network import PolicyNetwork
from clearl.types import Batch, Visit


class _Elastic(Wrapper):
    """The base method's losses, and a penalty `ewc` that holds parameters that mattered for earlier visits."""

    needs_boundaries = True
    terms = ("ewc",)

    def __init__(self, base: Method, lam: float, anchors: Anchors, **fisher: Unpack[FisherOptions]) -> None:
        super().__init__(base)
        check_wrapped(base, lam)
        self.lam = lam
        self.consolidation = Consolidation(anchors, **fisher)

    def weights(self) -> Mapping[str, float]:
        return {**self.base.weights(), "ewc": self.lam}

    def losses(self, network: PolicyNetwork, batch: Batch) -> dict[str, Tensor]:
        self.consolidation.observe(batch)
        return self.base.losses(network, batch) | {"ewc": self.consolidation.penalty(network)}

    def visit(self, network: PolicyNetwork, visit: Visit) -> None:
        super().visit(network, visit)
        if self.consolidation.switches(visit):
            self.consolidation.consolidate(network)
        self.consolidation.enter(visit)

    def before_step(self, gradients: Mapping[str, Tensor]) -> None:
        self.consolidation.compare(gradients, self.lam)
        super().before_step(gradients)

    def diagnostics(self) -> dict[str, float]:
        return super().diagnostics() | self.consolidation.diagnostics()

    def own_tensors(self) -> dict[str, Tensor]:
        return {f"ewc/{name}": tensor for name, tensor in self.consolidation.tensors().items()}

    def own_state(self) -> dict[str, Any]:
        return {"ewc": self.consolidation.state()}

    def grown_own(self, tensors: Mapping[str, Tensor], growth: NetworkGrowth) -> dict[str, Tensor]:
        grown = self.consolidation.grown(select(tensors, "ewc/"), growth)
        return {f"ewc/{name}": tensor for name, tensor in grown.items()}

    def restore_own(self, network: PolicyNetwork, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        self.consolidation.restore(select(tensors, "ewc/"), state["ewc"])


class Ewc(_Elastic):
    """lambda/2 sum_tasks F_k (theta - theta_k)^2, with an anchor and a Fisher for each task that was visited."""

    label = "EWC"
    settings = EwcSettings

    def __init__(
        self, base: Method, *, lam: float = 500.0, omit_current: bool = False, **fisher: Unpack[FisherOptions]
    ) -> None:
        """`omit_current` leaves out the anchor of the task that is visited."""
        super().__init__(base, lam, TaskAnchors(omit_current=omit_current), **fisher)

    @classmethod
    def around(cls, base: Method, config: RunConfig) -> Ewc:
        fisher = fisher_options(config)
        return cls(base, lam=config.ewc_lambda, omit_current=config.ewc_omit_current, **fisher)


class OnlineEwc(_Elastic):
    """lambda/2 gamma F* (theta - theta*)^2, with one anchor and one running Fisher for all visits."""

    label = "Online EWC"
    settings = OnlineEwcSettings

    def __init__(
        self, base: Method, *, lam: float = 75.0, gamma: float = 0.99, **fisher: Unpack[FisherOptions]
    ) -> None:
        check_gamma(gamma)
        super().__init__(base, lam, OnlineAnchor(gamma), **fisher)

    @classmethod
    def around(cls, base: Method, config: RunConfig) -> OnlineEwc:
        return cls(base, lam=config.online_ewc_lambda, gamma=config.ewc_gamma, **fisher_options(config))


def check_wrapped(base: Method, lam: float) -> None:
    """Check the base and the lambda of a method with a Fisher."""
    if not 0 <= lam < float("inf"):
        raise ConfigError(f"the weight lambda of EWC's penalty must be a finite number >= 0, got {lam}")
    if base.replay_fraction >= 1:
        raise ConfigError("EWC's Fisher needs new experience: set replay_fraction below 1, or use the method 'clear'")


def check_gamma(gamma: float) -> None:
    """Check the decay of online EWC's Fisher."""
    if not 0 < gamma <= 1:
        raise ConfigError(f"ewc_gamma must lie in (0, 1], got {gamma}")
