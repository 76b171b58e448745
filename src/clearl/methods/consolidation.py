"""The common part of EWC, online EWC and Progress & Compress: the end of a visit, its Fisher, and the penalty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import torch
from torch import Tensor

from clearl.config import RunConfig
from clearl.methods.anchors import Anchors, select
from clearl.methods.fisher import diagonal_fisher
from clearl.methods.fisher_memory import FisherMemory
from clearl.nets.growth import NetworkGrowth
from clearl.nets.network import PolicyNetwork, as_module
from clearl.seeding import derive, generator
from clearl.types import Batch, Visit

_COMPARED_EVERY_UPDATES = 20


class FisherOptions(TypedDict, total=False):
    """Arguments of every method with a Fisher; `Consolidation` has their defaults."""

    fisher_batches: int
    """Batches at the end of a visit from which the Fisher is estimated."""
    fisher_steps: int
    """Steps that are taken from each of them."""
    seed: int


def fisher_options(config: RunConfig) -> FisherOptions:
    """Read the settings of the Fisher."""
    return {"fisher_batches": config.fisher_batches, "seed": derive(config.seed, "method")}


class Consolidation:
    """Notices the end of a visit; then holds a network's parameters where they matter for the policy learnt in it."""

    def __init__(self, anchors: Anchors, *, fisher_batches: int = 100, fisher_steps: int = 32, seed: int = 0) -> None:
        self.anchors, self.seed = anchors, seed
        self.memory = FisherMemory(batches=fisher_batches, steps=fisher_steps, seed=seed)
        self._visit: int | None = None
        self._task = ""
        self.gradient_ratio: float | None = None
        self._pull: dict[str, Tensor] = {}  # the penalty's gradient, before its weight, until it is compared

    def switches(self, visit: Visit) -> bool:
        """Return whether `visit` differs from the one before it."""
        return self._visit is not None and self._visit != visit.index

    def enter(self, visit: Visit) -> None:
        """Begin a visit: later experience belongs to it."""
        if self._visit == visit.index:
            return
        self.memory.clear()
        self._visit, self._task = visit.index, "+".join(visit.tasks)
        self.anchors.enter(self._task)

    def observe(self, batch: Batch) -> None:
        """Keep some of the new experience in `batch`, for the Fisher at the end of the visit."""
        self.memory.add(batch, visit=self._visit or 0)

    def consolidate(self, network: PolicyNetwork) -> None:
        """End the visit: anchor the network's present parameters."""
        windows = self.memory.windows()
        if not windows:
            return  # Nothing new was seen, so nothing was learnt that the earlier anchors do not hold.
        fisher = diagonal_fisher(network, windows, generator(self.seed, "fisher", self._visit or 0))
        anchor = {name: p.detach().clone() for name, p in as_module(network).named_parameters()}
        self.anchors.add(self._task, anchor, fisher)

    def penalty(self, network: PolicyNetwork) -> Tensor:
        """1/2 sum F (theta - theta*)^2, before its weight lambda; 0 in the first visit."""
        penalty = self.anchors.penalty()
        module = as_module(network)
        if penalty is None:
            return torch.zeros((), device=next(module.parameters()).device)
        if self.memory.added % _COMPARED_EVERY_UPDATES == 1:
            self._pull = penalty.gradient(module)
        return penalty(module)

    def compare(self, gradients: Mapping[str, Tensor], weight: float, prefix: str = "") -> None:
        """Note ||weight * gradient of the penalty|| / ||gradient of all other terms||, in one update of twenty.

        `gradients` are of the whole loss; `prefix` is what their names have before those of the held network.
        """
        pull = {prefix + name: weight * part for name, part in self._pull.items() if prefix + name in gradients}
        self._pull = {}
        if pull:
            rest = torch.nn.utils.get_total_norm([gradients[name] - part for name, part in pull.items()])
            self.gradient_ratio = float(torch.nn.utils.get_total_norm(list(pull.values())) / rest)

    def diagnostics(self) -> dict[str, float]:
        """Return the newest ratio; nothing before there is a penalty."""
        return {} if self.gradient_ratio is None else {"ewc_gradient_ratio": self.gradient_ratio}

    def tensors(self) -> dict[str, Tensor]:
        anchors = {f"anchors/{name}": tensor for name, tensor in self.anchors.tensors().items()}
        return anchors | {f"memory/{name}": tensor for name, tensor in self.memory.tensors().items()}

    def state(self) -> dict[str, Any]:
        position = {"visit": self._visit, "task": self._task, "added": self.memory.added}
        return position | {"anchors": self.anchors.state(), "gradient_ratio": self.gradient_ratio}

    def grown(self, tensors: Mapping[str, Tensor], growth: NetworkGrowth, prefix: str = "") -> dict[str, Tensor]:
        """Fit the result of `tensors` to a held network that has grown; `prefix` is that of its parameters in `growth`.

        New weights mattered for no task so far: their Fisher is 0.
        """
        held = [name for name in tensors if name.startswith("anchors/")]
        grown = {}
        for kind in dict.fromkeys(f"{name.rpartition('/')[0]}/" for name in held):  # "anchors/0/fisher/", ...
            padded = growth.like_parameters(select(tensors, kind), prefix=prefix)
            grown |= {kind + name: tensor for name, tensor in padded.items()}
        memory = self.memory.grown(select(tensors, "memory/"), growth.spaces)
        return grown | {f"memory/{name}": tensor for name, tensor in memory.items()}

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        self._visit, self._task = state["visit"], state["task"]
        self.memory.restore(select(tensors, "memory/"), state["added"])
        self.anchors.restore(select(tensors, "anchors/"), state["anchors"])
        self.anchors.enter(self._task)
        self.gradient_ratio = state.get("gradient_ratio")
