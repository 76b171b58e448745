"""The seam between algorithms and everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from clearl.nets.network import PolicyNetwork
from clearl.types import Batch, Visit


class Method(Protocol):
    """An algorithm: which network it trains, by which losses, on which share of replay.

    Methods combine by wrapping (`Ewc(base=Clear())`): a wrapper adds terms to its base's `losses` and `weights`.
    """

    @property
    def needs_boundaries(self) -> bool:
        """Whether it must be told of tasks and switches. One that does not is never given a `Visit`."""
        ...

    @property
    def replay_fraction(self) -> float:
        """The share of each batch that is replay."""
        ...

    def build_network(self, build: Callable[[], PolicyNetwork]) -> PolicyNetwork:
        """The network to train, out of one or more plain ones."""
        ...

    def weights(self) -> Mapping[str, float]:
        """The weight of each term of the loss."""
        ...

    def losses(self, network: PolicyNetwork, batch: Batch) -> dict[str, torch.Tensor]:
        """The terms of the loss under the names of `weights`, each summed over time and batch."""
        ...

    def visit(self, network: PolicyNetwork, visit: Visit) -> None:
        """Called before every update, with where training stands; only if `needs_boundaries`."""
        ...

    def tensors(self) -> dict[str, torch.Tensor]:
        """State for the checkpoint that is not in the network."""
        ...

    def state(self) -> dict[str, Any]:
        """State for the checkpoint that is not a tensor, as JSON types."""
        ...

    def restore(self, network: PolicyNetwork, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
        """Take up `tensors` and `state` again."""
        ...
