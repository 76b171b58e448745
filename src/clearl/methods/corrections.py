"""Off-policy corrections: value targets and policy-gradient advantages for experience of older policies.

A correction is a pure function of a `Trace`. All of them are V-trace (Espeholt et al. 2018) with other weights: rho of
the temporal differences and of the advantages, c of the trace. Where both are 0, nothing is learnt from a step: the
trace ends there, its advantage is 0, and its target is its value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch

from clearl.config import RunConfig
from clearl.methods.settings import LeakyVtraceSettings, TrustRegionSettings, VtraceSettings
from clearl.nets.heads import Distribution

Tensor = torch.Tensor


@dataclass(frozen=True)
class Trace:
    """T steps of B unrolls, each tensor [T, B] but for `bootstrap_value` [B]."""

    ratios: Tensor
    """pi(a_s|h_s) / mu(a_s|h_s)."""
    discounts: Tensor
    """gamma_s, 0 where the episode terminated."""
    rewards: Tensor
    values: Tensor
    """V(h_s)."""
    bootstrap_value: Tensor
    """V(h_T)."""
    policy: Distribution
    behaviour: Distribution
    """pi and mu, for corrections that ask about a state and not about the action taken in it."""


Correction = Callable[[Trace], tuple[Tensor, Tensor]]
"""Gives targets v_s and advantages rho_s (r_s + gamma v_{s+1} - V(h_s)), each [T, B] and without gradient."""


class ConfiguredCorrection(Protocol):
    """The type that is registered as a correction: a class whose instances are corrections."""

    @classmethod
    def from_config(cls, config: RunConfig) -> Correction:
        """Return the correction with the settings of a run."""
        ...


@torch.no_grad()
def weighted_targets(trace: Trace, rhos: Tensor, cs: Tensor) -> tuple[Tensor, Tensor]:
    """Compute V-trace's sum with weights rho_s and c_s, each [T, B], backwards in time.

    v_s - V(h_s) = delta_s V + gamma_s c_s (v_{s+1} - V(h_{s+1})),
    with delta_s V = rho_s (r_s + gamma_s V(h_{s+1}) - V(h_s)).
    """
    steps, batch = trace.rewards.shape
    for tensor in (rhos, cs, trace.discounts, trace.values):
        assert tensor.shape == (steps, batch), f"expected {(steps, batch)}, got {tuple(tensor.shape)}"
    last = trace.bootstrap_value
    assert last.shape == (batch,), f"expected {(batch,)}, got {tuple(last.shape)}"

    values_next = torch.cat([trace.values[1:], last[None]])
    deltas = rhos * (trace.rewards + trace.discounts * values_next - trace.values)
    excess, excesses = torch.zeros_like(last), [last] * steps
    for s, (delta, decay) in reversed(list(enumerate(zip(deltas, trace.discounts * cs, strict=True)))):
        excess = delta + decay * excess
        excesses[s] = excess
    targets = trace.values + torch.stack(excesses)

    targets_next = torch.cat([targets[1:], last[None]])
    advantages = rhos * (trace.rewards + trace.discounts * targets_next - trace.values)
    return targets, advantages


@dataclass(frozen=True)
class Vtrace(VtraceSettings):
    """rho_s = min(rho_bar, pi/mu), c_s = min(c_bar, pi/mu)."""

    settings: ClassVar[type] = VtraceSettings

    @classmethod
    def from_config(cls, config: RunConfig) -> Vtrace:
        return cls(config.rho_bar, config.c_bar)

    def __call__(self, trace: Trace) -> tuple[Tensor, Tensor]:
        return weighted_targets(trace, trace.ratios.clamp(max=self.rho_bar), trace.ratios.clamp(max=self.c_bar))


@dataclass(frozen=True)
class LeakyVtrace(LeakyVtraceSettings):
    """V-trace whose weights keep a share `vtrace_leak` of what is clipped: (1 - l) min(bar, pi/mu) + l pi/mu."""

    settings: ClassVar[type] = LeakyVtraceSettings

    @classmethod
    def from_config(cls, config: RunConfig) -> LeakyVtrace:
        return cls(config.rho_bar, config.c_bar, config.vtrace_leak)

    def __call__(self, trace: Trace) -> tuple[Tensor, Tensor]:
        bars = (self.rho_bar, self.c_bar)
        rhos, cs = (torch.lerp(trace.ratios.clamp(max=bar), trace.ratios, self.vtrace_leak) for bar in bars)
        return weighted_targets(trace, rhos, cs)


@dataclass(frozen=True)
class TrustRegion(TrustRegionSettings):
    """LASER (Schmitt et al. 2019): V-trace that rejects the steps of states in which pi and mu differ too much.

    V-trace evaluates the implied policy pi~ = min(rho_bar mu, pi), normalised. A step counts if KL[pi || pi~] of its
    state is below b = `trust_region`; a rejected one is cut from trace, policy gradient and value loss. The criterion
    is of the state, never of the action taken, which would bias the estimate. Cloning stays on: it pulls pi back.
    """

    settings: ClassVar[type] = TrustRegionSettings

    @classmethod
    def from_config(cls, config: RunConfig) -> TrustRegion:
        return cls(config.rho_bar, config.c_bar, config.trust_region)

    @torch.no_grad()
    def __call__(self, trace: Trace) -> tuple[Tensor, Tensor]:
        divergence = state_divergence(trace.policy, trace.behaviour, self.rho_bar)
        accepted = (divergence < self.trust_region).to(trace.ratios.dtype)
        rhos, cs = (accepted * trace.ratios.clamp(max=bar) for bar in (self.rho_bar, self.c_bar))
        return weighted_targets(trace, rhos, cs)


@runtime_checkable
class ClosedForm(Protocol):
    """A policy whose implied policy has a closed form."""

    def implied_kl(self, behaviour: Any, rho_bar: float) -> Tensor:
        """KL[self || pi~], with pi~ = min(rho_bar mu, self), normalised."""
        ...


def state_divergence(policy: Distribution, behaviour: Distribution, rho_bar: float) -> Tensor:
    """Return KL[pi || pi~] of each state; where that has no closed form, as for real numbers: KL[pi || mu].

    It is never less (Jensen), so that no state is accepted that the other would reject.
    """
    return policy.implied_kl(behaviour, rho_bar) if isinstance(policy, ClosedForm) else policy.kl(behaviour)
