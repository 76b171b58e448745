"""Trust in replayed unrolls: those that contradict present dynamics are not cloned or learnt from. No boundaries.

Where the same actions lead elsewhere now (controls swapped without a visible sign), old unrolls teach what is wrong.
Three small classifiers tell new steps from replayed ones, trained on every batch with equal weight of either class:

    s(o)                             the log odds that a step is new, from what was seen
    u(o, a)                          from what was seen and done
    u(o, a) + g(o, a, o' - o)        from what followed as well

What u explains is a change of states or of the policy. What only g explains is a change of the world: exp(g) estimates
p_now(o'|o, a) / p_then(o'|o, a) (Eysenbach et al. 2021 use this ratio in a reward). It counts only in states that are
seen now, f = min(1, 2 sigmoid(s)): elsewhere, as in another task, nothing is known of the world of now. The trust in a
replayed unroll b is

    w_b = exp(min(0, k * mean_t f_t g_t)),    over its valid steps t that end no episode

with k = `trust_slope`. Its cloning losses are weighted with w_b; with `trust_scope: replay` an unroll with w_b < 1/2 is
left out of the other losses as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.methods.method import Method, OptimizerState, Wrapper
from clearl.methods.settings import TrustSettings
from clearl.nets.network import PolicyNetwork, ShowsNumbers
from clearl.types import Batch

_HIDDEN = 32
_LEAST = 1e-6  # a weight of 0 would pass for a new unroll
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # Adam's own defaults


class Trust(Wrapper):
    """Weighs replayed unrolls by how well they agree with the present dynamics."""

    label = "Trust"
    settings = TrustSettings

    def __init__(
        self, base: Method, *, slope: float = TrustSettings.trust_slope, rate: float = TrustSettings.trust_rate,
        scope: Literal["cloning", "replay"] = TrustSettings.trust_scope,
    ) -> None:  # fmt: skip
        super().__init__(base)
        self.slope, self.rate, self.scope = slope, rate, scope
        self._parameters: dict[str, Tensor] = {}
        self._moments: dict[str, Tensor] = {}
        self._steps = 0
        self._batch: Batch | None = None
        self._mean_trust = 1.0

    @classmethod
    def around(cls, base: Method, config: RunConfig) -> Trust:
        return cls(base, slope=config.trust_slope, rate=config.trust_rate, scope=config.trust_scope)

    def build_network(self, build: Callable[[], PolicyNetwork]) -> PolicyNetwork:
        network = super().build_network(build)
        if not isinstance(network, ShowsNumbers):
            raise ConfigError(
                f"trust needs a network with numbers(observation), which {type(network).__name__} has not; add it, or "
                "train without trust"
            )
        return network

    def losses(self, network: PolicyNetwork, batch: Batch) -> dict[str, Tensor]:
        if not batch.is_replay.any() or batch.is_replay.all():
            return super().losses(network, batch)
        self._batch = batch
        with torch.no_grad():
            inputs = features(network, batch)
            if not self._parameters:
                self._parameters = initial_parameters(inputs)
            found = log_odds_of(self._parameters, inputs)
            trust = trust_of(found["seen"], found["world"], comparable(batch), self.slope)
            trust = torch.where(batch.is_replay, trust, 1.0)
        self._mean_trust = float(trust[batch.is_replay].mean())
        weighted = replace(batch, is_replay=batch.is_replay.float() * trust)
        if self.scope == "replay":
            weighted = replace(weighted, valid=batch.valid & (trust >= 0.5))
        return super().losses(network, weighted)

    def after_step(self, network: PolicyNetwork, optimizer: OptimizerState) -> None:
        super().after_step(network, optimizer)
        if self._batch is not None:
            self._train(network, self._batch)
            self._batch = None

    def diagnostics(self) -> dict[str, float]:
        return {**super().diagnostics(), "mean_trust": self._mean_trust}

    def _train(self, network: PolicyNetwork, batch: Batch) -> None:
        """Make one step of Adam on all classifiers."""
        with torch.no_grad():
            inputs = features(network, batch)
        parameters = {name: tensor.detach().requires_grad_() for name, tensor in self._parameters.items()}
        with torch.enable_grad():
            found = log_odds_of(parameters, inputs)
            weights = balanced(batch.is_replay, comparable(batch))
            is_new = (~batch.is_replay).float().expand_as(weights)
            told = (found["seen"], found["done"], found["done"].detach() + found["world"])
            loss = sum(
                (functional.binary_cross_entropy_with_logits(log_odds, is_new, reduction="none") * weights).sum()
                for log_odds in told
            )
            gradients = torch.autograd.grad(torch.as_tensor(loss), list(parameters.values()))
        self._steps += 1
        for (name, tensor), gradient in zip(self._parameters.items(), gradients, strict=True):
            mean = self._moments.setdefault(f"mean/{name}", torch.zeros_like(tensor)).lerp_(gradient, 1 - _BETA1)
            square = self._moments.setdefault(f"square/{name}", torch.zeros_like(tensor))
            square.lerp_(gradient.square(), 1 - _BETA2)
            scale = (square / (1 - _BETA2**self._steps)).sqrt() + _EPSILON
            self._parameters[name] = tensor - self.rate * mean / (1 - _BETA1**self._steps) / scale

    def own_tensors(self) -> dict[str, Tensor]:
        return {f"trust/{name}": tensor for name, tensor in {**self._parameters, **self._moments}.items()}

    def own_state(self) -> dict[str, Any]:
        return {"trust_steps": self._steps}

    def restore_own(self, network: PolicyNetwork, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        named = {name.removeprefix("trust/"): tensor for name, tensor in tensors.items()}
        self._moments = {name: tensor for name, tensor in named.items() if name.startswith(("mean/", "square/"))}
        self._parameters = {name: tensor for name, tensor in named.items() if name not in self._moments}
        self._steps = int(state["trust_steps"])


def trust_of(seen: Tensor, world: Tensor, comparable: Tensor, slope: float) -> Tensor:
    """Return w_b [B] out of s and g [T, B], over the steps that can be compared [T, B]."""
    evidence = torch.clamp(2 * torch.sigmoid(seen), max=1.0) * world * comparable
    mean = evidence.sum(0) / comparable.sum(0).clamp(min=1)
    return torch.exp(torch.clamp(slope * mean, max=0.0)).clamp(min=_LEAST)


def comparable(batch: Batch) -> Tensor:
    """[T, B]: 1 for steps whose next observation is what the action led to, and not the start of another episode."""
    return (batch.valid & ~batch.first[1:]).float()


def balanced(is_replay: Tensor, comparable: Tensor) -> Tensor:
    """[T, B]: weights of steps that sum to 1/2 over the new and to 1/2 over the replayed ones."""
    parts = [comparable * mask.float() for mask in (is_replay, ~is_replay)]
    return sum((part / part.sum().clamp(min=1) / 2 for part in parts), torch.zeros_like(comparable))


def features(network: PolicyNetwork, batch: Batch) -> dict[str, Tensor]:
    """Return the inputs of each classifier at every step, [T, B, *], with observations as the network sees them."""
    assert isinstance(network, ShowsNumbers), "trust refuses other networks when they are built"
    observation = network.numbers(batch.observation.flatten(0, 1)).unflatten(0, batch.first.shape)
    seen, followed = observation[:-1], observation[1:] - observation[:-1]
    done = torch.cat([seen, network.head.embed(batch.action).float()], -1)
    return {"seen": seen, "done": done, "world": torch.cat([done, followed], -1)}


def initial_parameters(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Draw first layers, and set second layers to 0: all is trusted until there is evidence."""
    generator = torch.Generator().manual_seed(0)
    made: dict[str, Tensor] = {}
    for name, each in inputs.items():
        size, device = each.shape[-1], each.device
        made[f"{name}/in"] = (torch.randn(size, _HIDDEN, generator=generator) / size**0.5).to(device)
        made[f"{name}/bias"] = torch.zeros(_HIDDEN, device=device)
        made[f"{name}/out"] = torch.zeros(_HIDDEN, device=device)
    return made


def log_odds_of(parameters: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return s, u and g of every step, [T, B], as "seen", "done" and "world"."""
    hidden = {
        name: torch.relu(each @ parameters[f"{name}/in"] + parameters[f"{name}/bias"]) for name, each in inputs.items()
    }
    return {name: each @ parameters[f"{name}/out"] for name, each in hidden.items()}
