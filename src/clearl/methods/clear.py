"""CLEAR (Rolnick et al. 2019), in the order of the paper's Section 3: six equations, then the class that weighs them.

All functions are time-major [T, B] and return one number per step; `Clear.losses` sums them over time and batch, as
IMPALA does, and the paper's weights of 0.01 and 0.005 are for such sums. Where the gradient-norm clip binds in every
update (as 40 does on MinAtar) only their ratios count: the sum is scaled to the same length whatever it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import torch

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.methods.method import Method
from clearl.methods.settings import ClearSettings
from clearl.nets.heads import Distribution
from clearl.nets.network import PolicyNetwork, StepInput
from clearl.types import Batch

Tensor = torch.Tensor


@torch.no_grad()
def vtrace(
    *,
    behaviour_log_probs: Tensor,
    target_log_probs: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace targets v_s and policy-gradient advantages rho_s (r_s + gamma v_{s+1} - V(h_s)).

    Args: log mu(a_s|h_s), log pi(a_s|h_s), gamma_s (0 where the episode terminated), r_s and V(h_s), each [T, B]; and
    V(h_T), [B]. No gradient flows through the results. The sum of the paper is computed backwards in time:
    v_s - V(h_s) = delta_s V + gamma_s c_s (v_{s+1} - V(h_{s+1})).
    """
    steps, batch = rewards.shape
    for tensor in (behaviour_log_probs, target_log_probs, discounts, values):
        assert tensor.shape == (steps, batch), f"expected {(steps, batch)}, got {tuple(tensor.shape)}"
    assert bootstrap_value.shape == (batch,), f"expected {(batch,)}, got {tuple(bootstrap_value.shape)}"

    ratios = torch.exp(target_log_probs - behaviour_log_probs)
    rhos, cs = ratios.clamp(max=rho_bar), ratios.clamp(max=c_bar)
    values_next = torch.cat([values[1:], bootstrap_value[None]])
    deltas = rhos * (rewards + discounts * values_next - values)

    excess, excesses = torch.zeros_like(bootstrap_value), [bootstrap_value] * steps
    for s, (delta, decay) in reversed(list(enumerate(zip(deltas, discounts * cs, strict=True)))):
        excess = delta + decay * excess
        excesses[s] = excess
    targets = values + torch.stack(excesses)

    targets_next = torch.cat([targets[1:], bootstrap_value[None]])
    advantages = rhos * (rewards + discounts * targets_next - values)
    return targets, advantages


def policy_gradient_loss(log_probs: Tensor, advantages: Tensor) -> Tensor:
    """L_policy-gradient := -rho_s log pi(a_s|h_s) (r_s + gamma v_{s+1} - V(h_s))."""
    return -log_probs * advantages.detach()


def value_loss(values: Tensor, targets: Tensor) -> Tensor:
    """L_value := (V(h_s) - v_s)^2."""
    return (values - targets.detach()).square()


def entropy_loss(policy: Distribution) -> Tensor:
    """L_entropy := sum_a pi(a|h_s) log pi(a|h_s)."""
    return -policy.entropy()


def policy_cloning_loss(behaviour: Distribution, policy: Distribution) -> Tensor:
    """L_policy-cloning := sum_a mu(a|h_s) log(mu(a|h_s) / pi(a|h_s)), that is KL[mu || pi]."""
    return behaviour.kl(policy)


def value_cloning_loss(values: Tensor, replay_values: Tensor) -> Tensor:
    """L_value-cloning := ||V(h_s) - V_replay(h_s)||_2^2."""
    return (values - replay_values.detach()).square()


@dataclass(frozen=True)
class Clear(ClearSettings, Method):
    """The weights of CLEAR's terms; without replay it is the paper's baseline (IMPALA).

    The first three terms apply to new and replay experience alike, the two cloning terms to replay only.
    """

    label: ClassVar[str] = "CLEAR"
    settings: ClassVar[type | None] = ClearSettings
    replay_fraction: float = RunConfig.replay_fraction

    def __post_init__(self) -> None:
        if not 0 <= self.replay_fraction <= 1:
            raise ConfigError(f"replay_fraction must lie in [0, 1], got {self.replay_fraction}")

    @classmethod
    def from_config(cls, config: RunConfig) -> Clear:
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    def weights(self) -> Mapping[str, float]:
        return {
            "policy_gradient": self.policy_gradient_weight,
            "value": self.value_weight,
            "entropy": self.entropy_weight,
            "policy_cloning": self.policy_cloning_weight,
            "value_cloning": self.value_cloning_weight,
        }

    def losses(self, network: PolicyNetwork, batch: Batch) -> dict[str, Tensor]:
        """One forward pass over new and replay together, then the five terms, each summed over time and batch."""
        inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
        output = network.unroll(inputs, batch.core_state)
        values, bootstrap_value = output.value[:-1], output.value[-1]
        policy = network.head.distribution(output.policy[:-1], batch.mask)
        behaviour = network.head.distribution(batch.behaviour_policy, batch.mask)
        log_probs = policy.log_prob(batch.action)

        # A step whose action an autoreset ignored ends the trace with its own value: the episode before it was cut by
        # a time limit, and its last observation is worth what the network says it is worth.
        ignored = ~batch.valid
        targets, advantages = vtrace(
            behaviour_log_probs=behaviour.log_prob(batch.action),
            target_log_probs=log_probs,
            discounts=batch.discount.masked_fill(ignored, 0.0),
            rewards=torch.where(ignored, values.detach(), batch.reward),
            values=values,
            bootstrap_value=bootstrap_value,
            rho_bar=self.rho_bar,
            c_bar=self.c_bar,
        )
        every = batch.valid.float()
        replay = every * batch.is_replay.float()
        return {
            "policy_gradient": (policy_gradient_loss(log_probs, advantages) * every).sum(),
            "value": (value_loss(values, targets) * every).sum(),
            "entropy": (entropy_loss(policy) * every).sum(),
            "policy_cloning": (policy_cloning_loss(behaviour, policy) * replay).sum(),
            "value_cloning": (value_cloning_loss(values, batch.behaviour_value) * replay).sum(),
        }
