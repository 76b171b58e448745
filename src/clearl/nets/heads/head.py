"""The seam of policy heads: from features to a distribution over the actions of an `ActionSpec`.

A network's `policy` layer gives `raw_size` numbers a step. `Head.policy` turns them into the stored policy
[..., policy_size], from which `Head.distribution` is built again wherever a policy is needed:

    output = network.unroll(batch.inputs, batch.core_state)
    policy = network.head.distribution(output.policy[:-1], batch.mask)
    behaviour = network.head.distribution(batch.behaviour_policy, batch.mask)
    loss = -policy.log_prob(batch.action) * advantages + behaviour.kl(policy)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor, nn

from clearl.growth import Growth
from clearl.spaces import ActionSpec


class Distribution(Protocol):
    """A policy at some steps [...]; every method gives one number, or one action, a step."""

    def log_prob(self, action: Tensor) -> Tensor:
        """log pi(a)."""
        ...

    def entropy(self) -> Tensor:
        """H[pi]."""
        ...

    def kl(self, other: Any) -> Tensor:
        """KL[self || other], with `other` of the same head."""
        ...

    def sample(self, uniform: Tensor) -> Tensor:
        """Sample by inversion of `uniform` [..., *uniform_shape] in [0, 1); the same numbers give the same actions."""
        ...

    def mode(self) -> Tensor:
        """Return the likeliest action."""
        ...

    def fisher_roots(self, uniform: Tensor) -> Tensor:
        """Numbers [..., K] whose squared gradients add up to the Fisher information of the policy's parameters.

        Exactly, where there is a closed form; else on average over `uniform`, as log pi of a sampled action does.
        """
        ...

    def softened(self, temperature: float) -> Distribution:
        """pi^(1 / temperature), normalised."""
        ...


class Described(NamedTuple):
    """Numbers of a policy [..., n], and what they are."""

    values: Tensor
    about: str


class HeadPlaces(NamedTuple):
    """The places of a head's parts in a head with more actions."""

    raw: np.ndarray
    """[raw_size]: of the numbers that the policy layer gives."""
    embedding: np.ndarray
    """[embedding_size]."""
    parameters: Mapping[str, np.ndarray] = {}
    """Of the entries of the head's own parameters, by name."""


class Head(Protocol):
    """Turns a network's outputs into policies, and policies into actions. Implementations are `nn.Module`s."""

    action: ActionSpec
    raw_size: int
    """Numbers that the head needs of the network's policy layer."""
    embedding_size: int
    """Numbers that stand for the last action in a recurrent core's input."""
    uniform_shape: tuple[int, ...]
    """Random numbers for one sampled action; see `Distribution.sample`."""

    def policy(self, raw: Tensor) -> Tensor:
        """Turn [..., raw_size] into the policy as unrolls store it, [..., policy_size]."""
        ...

    def distribution(self, policy: Tensor, mask: Tensor | None = None) -> Distribution:
        """Return the policy at some steps.

        `mask` [..., mask_size] bool, broadcast, leaves out what a task does not have.
        """
        ...

    def described(self, policy: Tensor, mask: Tensor) -> dict[str, Described]:
        """Return the numbers of a policy by name, for users of an exported agent."""
        ...

    def embed(self, action: Tensor) -> Tensor:
        """Embed actions [...] as [..., embedding_size]."""
        ...

    def noise(self, rng: np.random.Generator, mask: np.ndarray, steps: int) -> np.ndarray:
        """Draw [steps, B, ...] float32 for `choose`; `mask` [B, mask_size] is what the tasks of the slots have."""
        ...

    def choose(self, policy: np.ndarray, noise: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Sample actions [B, ...] from policies [B, policy_size] with the `noise` [B, ...] of one step.

        `mask` [B, mask_size] is what the present states allow, where that is less than what the tasks have.
        """
        ...

    def places_in(self, spaces: Growth) -> HeadPlaces:
        """Return the places of the head's parts in the head of the larger spaces."""
        ...

    def initialise(self, layer: nn.Linear, generator: Any) -> None:
        """Initialise the policy layer and the head itself."""
        ...
