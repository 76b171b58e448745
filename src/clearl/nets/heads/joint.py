"""Choices and real numbers in one action, independent given the state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from clearl.growth import Growth
from clearl.nets.heads.gaussian import GaussianHead, StdSettings
from clearl.nets.heads.head import Described, Distribution, HeadPlaces
from clearl.nets.heads.multi_categorical import MultiCategoricalHead
from clearl.spaces import ActionSpec


class Joint:
    """The choices' distribution and the real numbers': log-probabilities, entropies and KLs are sums."""

    def __init__(self, parts: Sequence[Distribution], count: int) -> None:
        """`count` choices come first in an action."""
        self._parts, self._count = parts, count

    def log_prob(self, action: Tensor) -> Tensor:
        choices, reals = self._parts
        return choices.log_prob(action[..., : self._count]) + reals.log_prob(action[..., self._count :])

    def entropy(self) -> Tensor:
        choices, reals = self._parts
        return choices.entropy() + reals.entropy()

    def kl(self, other: Joint) -> Tensor:
        (choices, reals), (other_choices, other_reals) = self._parts, other._parts
        return choices.kl(other_choices) + reals.kl(other_reals)

    def sample(self, uniform: Tensor) -> Tensor:
        choices, reals = self._parts
        drawn = reals.sample(uniform[..., self._count :])
        return torch.cat([choices.sample(uniform[..., : self._count]).to(drawn.dtype), drawn], -1)

    def mode(self) -> Tensor:
        choices, reals = self._parts
        likeliest = reals.mode()
        return torch.cat([choices.mode().to(likeliest.dtype), likeliest], -1)

    def fisher_roots(self, uniform: Tensor) -> Tensor:
        """Return the roots of both parts: independent parts have no joint information."""
        choices, reals = self._parts
        roots = choices.fisher_roots(uniform[..., : self._count]), reals.fisher_roots(uniform[..., self._count :])
        return torch.cat(roots, -1)

    def softened(self, temperature: float) -> Joint:
        return Joint([part.softened(temperature) for part in self._parts], self._count)


class JointHead(nn.Module):
    """A head for the choices and one for the real numbers, side by side in everything that is stored."""

    def __init__(self, action: ActionSpec, std: StdSettings) -> None:
        super().__init__()
        self.action = action
        self.choices = MultiCategoricalHead(ActionSpec(action.choices))
        self.reals = GaussianHead(ActionSpec((), action.bounded), std)
        self._options = sum(action.choices)
        self.raw_size = self.choices.raw_size + self.reals.raw_size
        self.embedding_size = self.choices.embedding_size + self.reals.embedding_size
        self.uniform_shape = (len(action.choices) + action.reals,)

    def policy(self, raw: Tensor) -> Tensor:
        return torch.cat([raw[..., : self._options], self.reals.policy(raw[..., self._options :])], -1)

    def distribution(self, policy: Tensor, mask: Tensor | None = None) -> Joint:
        of_choices, of_reals = (None, None) if mask is None else self._split(mask)
        choices, reals = self._split(policy)
        parts = self.choices.distribution(choices, of_choices), self.reals.distribution(reals, of_reals)
        return Joint(parts, len(self.action.choices))

    def described(self, policy: Tensor, mask: Tensor) -> dict[str, Described]:
        (choices, reals), (of_choices, of_reals) = self._split(policy), self._split(mask)
        return self.choices.described(choices, of_choices) | self.reals.described(reals, of_reals)

    def embed(self, action: Tensor) -> Tensor:
        count = len(self.action.choices)
        reals = self.reals.embed(action[..., count:])
        return torch.cat([self.choices.embed(action[..., :count]).to(reals.dtype), reals], -1)

    def noise(self, rng: np.random.Generator, mask: np.ndarray, steps: int) -> np.ndarray:
        """[steps, B, mask_size] float32."""
        choices = self.choices.noise(rng, mask[:, : self._options], steps)
        return np.concatenate([choices, self.reals.noise(rng, mask[:, self._options :], steps)], axis=-1)

    def choose(self, policy: np.ndarray, noise: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Sample actions [B, K + D] float32."""
        possible = None if mask is None else mask[:, : self._options]
        choices = self.choices.choose(policy[:, : self._options], noise[:, : self._options], possible)
        reals = self.reals.choose(policy[:, self._options :], noise[:, self._options :])
        return np.concatenate([choices.astype(np.float32), reals], axis=1)

    def places_in(self, spaces: Growth) -> HeadPlaces:
        own = {f"reals.{name}": places for name, places in self.reals.places_in(spaces).parameters.items()}
        return HeadPlaces(spaces.policy_places[: self.raw_size], spaces.mask_places, own)

    def initialise(self, layer: nn.Linear, generator: torch.Generator) -> None:
        self.reals.initialise(layer, generator)

    def _split(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """Return what belongs to the choices, and what to the real numbers, of a policy or a mask."""
        return both[..., : self._options], both[..., self._options :]
