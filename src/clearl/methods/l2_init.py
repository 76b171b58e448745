"""L2 towards the initial parameters (regenerative regularisation, Kumar et al. 2023), around any base method.

Parameters that a task does not need drift back to where learning is known to begin well, which keeps a network plastic.
It needs no task boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from clearl.config import RunConfig
from clearl.methods.method import Method, Wrapper
from clearl.methods.settings import L2InitSettings
from clearl.nets.growth import NetworkGrowth
from clearl.nets.network import PolicyNetwork, as_module

START = "start/"


class L2Init(Wrapper):
    """Adds weight * ||theta - theta_0||^2, over the parameters that are trained."""

    label = "L2 init"
    settings = L2InitSettings
    terms = ("l2_init",)

    def __init__(self, base: Method, *, weight: float = L2InitSettings.l2_init_weight) -> None:
        super().__init__(base)
        self.weight = weight
        self._start: dict[str, Tensor] = {}

    @classmethod
    def around(cls, base: Method, config: RunConfig) -> L2Init:
        return cls(base, weight=config.l2_init_weight)

    def build_network(self, build: Callable[[], PolicyNetwork]) -> PolicyNetwork:
        network = super().build_network(build)
        self._start = {name: p.detach().clone() for name, p in as_module(network).named_parameters()}
        return network

    def weights(self) -> Mapping[str, float]:
        return {**super().weights(), "l2_init": self.weight}

    def losses(self, network: PolicyNetwork, batch: Any) -> dict[str, Tensor]:
        return {**super().losses(network, batch), "l2_init": self._distance(network)}

    def _distance(self, network: PolicyNetwork) -> Tensor:
        trained = [(name, p) for name, p in as_module(network).named_parameters() if p.requires_grad]
        device = trained[0][1].device
        if self._start[trained[0][0]].device != device:
            self._start = {name: tensor.to(device) for name, tensor in self._start.items()}
        return torch.stack([(p - self._start[name]).square().sum() for name, p in trained]).sum()

    def own_tensors(self) -> dict[str, Tensor]:
        return {START + name: tensor for name, tensor in self._start.items()}

    def grown_own(self, tensors: Mapping[str, Tensor], growth: NetworkGrowth) -> dict[str, Tensor]:
        """Hold new weights to where they begin."""
        start = {name.removeprefix(START): tensor for name, tensor in tensors.items()}
        return {START + name: tensor for name, tensor in growth.like_parameters(start, fresh=True).items()}

    def restore_own(self, network: PolicyNetwork, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        self._start = {name.removeprefix(START): tensor for name, tensor in tensors.items()}
