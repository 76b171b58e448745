"""A network's parameters and buffers as one flat float array: the only thing that flows back to the actors."""

from __future__ import annotations

import numpy as np
import torch

from clearl.nets.network import ActorCritic, PolicyNetwork, as_module
from clearl.nets.torsos import Dense


class FlatWeights:
    """Copies a network's state to and from a flat float32 vector of fixed length."""

    def __init__(self, network: PolicyNetwork) -> None:
        self._tensors = [tensor.detach() for tensor in as_module(network).state_dict(keep_vars=True).values()]
        parts = as_module(network).modules()
        self._keep_columns = [part.keep_columns for part in parts if isinstance(part, ActorCritic | Dense)]
        self._sizes = [tensor.numel() for tensor in self._tensors]
        self.size = sum(self._sizes)

    @torch.no_grad()
    def write_to(self, flat: np.ndarray) -> None:
        """Network -> vector."""
        for tensor, part in zip(self._tensors, torch.from_numpy(flat).split(self._sizes), strict=True):
            part.copy_(tensor.reshape(-1))

    @torch.no_grad()
    def read_from(self, flat: np.ndarray) -> None:
        """Vector -> network, in place. From then on the network acts, and must not change in another way."""
        for tensor, part in zip(self._tensors, torch.from_numpy(flat).split(self._sizes), strict=True):
            tensor.copy_(part.view(tensor.shape))
        for keep in self._keep_columns:
            keep()
