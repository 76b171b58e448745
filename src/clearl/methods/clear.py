"""CLEAR (Rolnick et al. 2019), in the order of the paper's Section 3: its five losses, then the class that weighs them.

The targets v_s and the weights rho_s of the first two are V-trace's, or another correction's (`corrections.py`).

All functions are time-major [T, B] and return one number per step; `Clear.losses` sums them over time and batch, as
IMPALA does, and the paper's weights of 0.01 and 0.005 are for such sums. Where the gradient-norm clip binds in every
update (as 40 does on MinAtar) only their ratios count: the gradient of the sum is scaled to the same norm in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from clearl.config import RunConfig, settings_of
from clearl.errors import ConfigError
from clearl.methods import CORRECTIONS
from clearl.methods.corrections import Correction, Trace, Vtrace
from clearl.methods.method import Method
from clearl.methods.settings import ClearSettings, LossWeights
from clearl.nets.heads import Distribution
from clearl.nets.network import PolicyNetwork, StepInput
from clearl.types import Batch

Tensor = torch.Tensor


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
class Clear(LossWeights, Method):
    """The weights of CLEAR's terms; without replay it is the paper's baseline (IMPALA).

    The first three terms apply to new and replay experience alike, the two cloning terms to replay only.
    """

    label: ClassVar[str] = "CLEAR"
    settings: ClassVar[type | None] = ClearSettings
    correction: Correction = field(default_factory=Vtrace)
    replay_fraction: float = RunConfig.replay_fraction

    def __post_init__(self) -> None:
        if not 0 <= self.replay_fraction <= 1:
            raise ConfigError(f"replay_fraction must lie in [0, 1], got {self.replay_fraction}")

    @classmethod
    def from_config(cls, config: RunConfig) -> Clear:
        weights = {name: getattr(config, name) for name in settings_of(LossWeights)}
        correction = CORRECTIONS.get(config.correction).from_config(config)
        return cls(**weights, correction=correction, replay_fraction=config.replay_fraction)

    def weights(self) -> Mapping[str, float]:
        return {
            "policy_gradient": self.policy_gradient_weight,
            "value": self.value_weight,
            "entropy": self.entropy_weight,
            "policy_cloning": self.policy_cloning_weight,
            "value_cloning": self.value_cloning_weight,
        }

    def losses(self, network: PolicyNetwork, batch: Batch) -> dict[str, Tensor]:
        """Return the five terms, each summed over time and batch, from one forward pass over new and replay."""
        inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
        output = network.unroll(inputs, batch.core_state)
        values, bootstrap_value = output.value[:-1], output.value[-1]
        policy = network.head.distribution(output.policy[:-1], batch.mask)
        behaviour = network.head.distribution(batch.behaviour_policy, batch.mask)
        log_probs = policy.log_prob(batch.action)

        # A step whose action an autoreset ignored ends the trace with its own value: the episode before it was cut by
        # a time limit, and its last observation is worth what the network says it is worth.
        ignored = ~batch.valid
        targets, advantages = self.correction(
            Trace(
                ratios=torch.exp(log_probs - behaviour.log_prob(batch.action)).detach(),
                discounts=batch.discount.masked_fill(ignored, 0.0),
                rewards=torch.where(ignored, values.detach(), batch.reward),
                values=values.detach(),
                bootstrap_value=bootstrap_value.detach(),
                policy=policy,
                behaviour=behaviour,
            )
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
