"""Anchors of parameters and their importances: the quadratic penalties of EWC and online EWC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from clearl.errors import ConfigError

Named = dict[str, Tensor]


@dataclass(frozen=True)
class Penalty:
    """1/2 sum_i importance_i (theta_i - centre_i)^2 + constant."""

    importance: Named
    centre: Named
    constant: float = 0.0

    def __call__(self, module: nn.Module) -> Tensor:
        parameters = dict(module.named_parameters())
        terms = [
            (importance * (parameters[name] - self.centre[name]).square()).sum()
            for name, importance in self.importance.items()
        ]
        return 0.5 * torch.stack(terms).sum() + self.constant

    @torch.no_grad()
    def gradient(self, module: nn.Module) -> Named:
        """importance_i (theta_i - centre_i), by parameter name."""
        parameters = dict(module.named_parameters())
        return {
            name: importance * (parameters[name] - self.centre[name]) for name, importance in self.importance.items()
        }


class Anchors(Protocol):
    """The anchors of the tasks so far."""

    def add(self, task: str, anchor: Named, fisher: Named) -> None:
        """Add the anchor of a visit to `task` that ended at the parameters `anchor`."""
        ...

    def enter(self, task: str) -> None:
        """Begin a visit to `task`."""
        ...

    def penalty(self) -> Penalty | None:
        """Return the penalty in force; None before the first task has ended."""
        ...

    def tensors(self) -> Named: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None: ...


class TaskAnchors:
    """EWC (Kirkpatrick 2017): an anchor and a Fisher for every task; a task that returns replaces its own.

    sum_k F_k (theta - a_k)^2 = (sum_k F_k) (theta - c)^2 + constant, with c the mean of the anchors weighted by F_k:
    the penalty costs the same for any number of tasks. The difference is taken from c, not expanded into theta^2,
    2 theta and 1, which would cancel in float32.

    Each F is as estimated: the mean of squared gradients of log pi per step, against losses that are summed over a
    batch. The published lambdas of 500 to 3000 were for Fishers that are not normalised, and fit: on MinAtar's control
    schemes the gradient of the penalty is then 0.03 to 0.2 of that of the losses after 20 updates of the second visit.
    """

    def __init__(self, *, omit_current: bool = False) -> None:
        """`omit_current` leaves out the anchor of the task that is visited: it would keep that task from improving."""
        self.omit_current = omit_current
        self._kept: dict[str, tuple[Named, Named]] = {}
        self._current = ""
        self._penalty: Penalty | None = None

    def add(self, task: str, anchor: Named, fisher: Named) -> None:
        self._kept[task] = (anchor, fisher)
        self._penalty = self._derived()

    def enter(self, task: str) -> None:
        changes = self.omit_current and task != self._current
        self._current = task
        if changes:
            self._penalty = self._derived()

    def penalty(self) -> Penalty | None:
        return self._penalty

    def tensors(self) -> Named:
        named = {}
        for i, pair in enumerate(self._kept.values()):
            for kind, part in zip(_KINDS, pair, strict=True):
                named |= {f"{i}/{kind}/{name}": tensor for name, tensor in part.items()}
        return named

    def state(self) -> dict[str, Any]:
        return {"tasks": list(self._kept)}

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        self._kept = {}
        for i, task in enumerate(state["tasks"]):
            self._kept[task] = (select(tensors, f"{i}/anchor/"), select(tensors, f"{i}/fisher/"))
        self._penalty = self._derived()

    def _derived(self) -> Penalty | None:
        omitted = self._current if self.omit_current else None
        held = [pair for task, pair in self._kept.items() if task != omitted]
        return _merge(held) if held else None


_KINDS = ("anchor", "fisher")
_SCALE = "mean of 1"


def _merge(kept: list[tuple[Named, Named]]) -> Penalty:
    importance, centre, constant = {}, {}, 0.0
    for name, last in kept[-1][0].items():
        anchors = torch.stack([anchor[name] for anchor, _ in kept]).double()
        fishers = torch.stack([fisher[name] for _, fisher in kept]).double()
        total = fishers.sum(0)
        mean = torch.where(total > 0, (fishers * anchors).sum(0) / total.clamp(min=torch.finfo(total.dtype).tiny), last)
        constant += 0.5 * float((fishers * (anchors - mean).square()).sum())
        importance[name], centre[name] = total.to(last.dtype), mean.to(last.dtype)
    return Penalty(importance, centre, constant)


class OnlineAnchor:
    """Online EWC (Schwarz 2018): one anchor, the newest, and one running Fisher F* <- gamma F* + F.

    Each F is scaled to a mean of 1 over all parameters before it is added, so that no task outweighs another by the
    scale of its policy's gradients; the penalty is 1/2 gamma F* (theta - theta*)^2. Of the ways to normalise, the mean
    makes the published lambdas of 25 to 175 those that hold a network: scaled to unit norm, a Fisher of N parameters
    is smaller by sqrt(N) or more (1e4 on MinAtar, where few parameters have most of it).
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self._anchor: Named = {}
        self._fisher: Named = {}
        self._penalty: Penalty | None = None

    def add(self, task: str, anchor: Named, fisher: Named) -> None:
        scaled = _scaled_to_mean_one(fisher)
        self._fisher = {n: self.gamma * self._fisher[n] + f if self._fisher else f for n, f in scaled.items()}
        self._anchor = anchor
        self._penalty = self._derived()

    def enter(self, task: str) -> None:
        """Do nothing: the running Fisher is of all tasks together."""

    def penalty(self) -> Penalty | None:
        return self._penalty

    def tensors(self) -> Named:
        anchor = {f"anchor/{name}": tensor for name, tensor in self._anchor.items()}
        return anchor | {f"fisher/{name}": tensor for name, tensor in self._fisher.items()}

    def state(self) -> dict[str, Any]:
        return {"scale": _SCALE}

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        self._anchor, self._fisher = (select(tensors, f"{kind}/") for kind in _KINDS)
        if self._fisher and state.get("scale") != _SCALE:
            raise ConfigError(
                "this checkpoint holds a running Fisher of unit norm, as version 0.1 of clearl kept it for online EWC "
                "and Progress & Compress; now Fishers have a mean of 1 and the same online_ewc_lambda holds more. Go "
                "on with version 0.1, or train anew with --overwrite or another --out"
            )
        self._penalty = self._derived() if self._anchor else None

    def _derived(self) -> Penalty:
        return Penalty({name: self.gamma * fisher for name, fisher in self._fisher.items()}, self._anchor)


def _scaled_to_mean_one(fisher: Named) -> Named:
    total = float(torch.stack([part.double().sum() for part in fisher.values()]).sum())
    count = sum(part.numel() for part in fisher.values())
    # A policy that no longer depends on its parameters has no Fisher; there is then nothing to hold on to.
    scale = count / total if total > 0 else 0.0
    return {name: part * scale for name, part in fisher.items()}


def select(tensors: Mapping[str, Tensor], prefix: str) -> Named:
    """Copy the tensors under `prefix`, without it."""
    return {name.removeprefix(prefix): t.clone() for name, t in tensors.items() if name.startswith(prefix)}
