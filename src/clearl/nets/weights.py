"""A network's parameters and buffers as one flat float array: the only thing that flows back to the actors."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import torch

from clearl.nets.network import PolicyNetwork, as_module


@runtime_checkable
class PreparesActing(Protocol):
    """A layer that keeps its weights in another form for acting, where only a few rows are multiplied at a time."""

    def prepare_acting(self) -> None:
        """Copy the present weights for acting; called after every change of a network that only acts."""
        ...


class FlatWeights:
    """Copies a network's state to and from a flat float32 vector of fixed length."""

    def __init__(self, network: PolicyNetwork) -> None:
        self._tensors = [tensor.detach() for tensor in as_module(network).state_dict(keep_vars=True).values()]
        self._prepared = [part for part in as_module(network).modules() if isinstance(part, PreparesActing)]
        self._sizes = [tensor.numel() for tensor in self._tensors]
        self.size = sum(self._sizes)

    @torch.no_grad()
    def write_to(self, flat: np.ndarray) -> None:
        """Copy the network's state into `vector`."""
        for tensor, part in zip(self._tensors, torch.from_numpy(flat).split(self._sizes), strict=True):
            part.copy_(tensor.reshape(-1))

    @torch.no_grad()
    def read_from(self, flat: np.ndarray) -> None:
        """Load `vector` into the network, in place. It is then for acting, and must not change in another way."""
        for tensor, part in zip(self._tensors, torch.from_numpy(flat).split(self._sizes), strict=True):
            tensor.copy_(part.view(tensor.shape))
        for part in self._prepared:
            part.prepare_acting()
