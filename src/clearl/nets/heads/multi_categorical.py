"""Several choices at once: independent categoricals, their log-probabilities, entropies and KLs summed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from clearl.growth import Growth
from clearl.nets.heads.categorical import MaskedCategorical, describe_options, near_zero
from clearl.nets.heads.head import Described, HeadPlaces
from clearl.spaces import ActionSpec


class MultiCategorical:
    """K independent categoricals. A choice of which the mask leaves no option does not count at all."""

    def __init__(self, choices: MaskedCategorical, present: Tensor) -> None:
        """choices [..., K, options]; present [..., K] bool."""
        self._choices, self._present = choices, present

    def log_prob(self, action: Tensor) -> Tensor:
        """log pi(a), for actions [..., K]."""
        return (self._choices.log_prob(action.long()) * self._present).sum(-1)

    def entropy(self) -> Tensor:
        return (self._choices.entropy() * self._present).sum(-1)

    def kl(self, other: MultiCategorical) -> Tensor:
        return (self._choices.kl(other._choices) * self._present).sum(-1)

    def sample(self, uniform: Tensor) -> Tensor:
        """Sample actions [..., K]; 0 for a choice that does not count."""
        return self._choices.sample(uniform) * self._present

    def mode(self) -> Tensor:
        return self._choices.mode() * self._present

    def fisher_roots(self, uniform: Tensor) -> Tensor:
        """log pi of a sampled action, [..., 1]."""
        return self.log_prob(self.sample(uniform)).unsqueeze(-1)

    def softened(self, temperature: float) -> MultiCategorical:
        return MultiCategorical(self._choices.softened(temperature), self._present)


class MultiCategoricalHead(nn.Module):
    """The logits of all options one after the other; spread to [K, most options] where they are used."""

    places: Tensor
    exists: Tensor

    def __init__(self, action: ActionSpec) -> None:
        super().__init__()
        assert action.choices and not action.bounded, f"choices are needed, got {action}"
        self.action = action
        self.raw_size = self.embedding_size = sum(action.choices)
        self.uniform_shape = (len(action.choices),)
        starts = np.cumsum([0, *action.choices[:-1]])
        most = np.arange(max(action.choices))
        exists = most < np.array(action.choices)[:, None]
        self._places = np.where(exists, starts[:, None] + most, sum(action.choices))
        self._starts = torch.from_numpy(starts)
        # Not in the state dict: they follow from the spec.
        self.register_buffer("places", torch.from_numpy(np.where(exists, self._places, 0)), persistent=False)
        self.register_buffer("exists", torch.from_numpy(exists), persistent=False)

    def policy(self, raw: Tensor) -> Tensor:
        return raw

    def distribution(self, policy: Tensor, mask: Tensor | None = None) -> MultiCategorical:
        possible = self.exists if mask is None else mask[..., self.places] & self.exists
        return MultiCategorical(MaskedCategorical(policy[..., self.places], possible), possible.any(-1))

    def described(self, policy: Tensor, mask: Tensor) -> dict[str, Described]:
        return describe_options(policy, mask)

    def embed(self, action: Tensor) -> Tensor:
        """Encode each choice one-hot, side by side, as bools."""
        chosen = action.long() + self._starts.to(action.device)
        return (chosen.unsqueeze(-1) == torch.arange(self.raw_size, device=action.device)).any(-2)

    def noise(self, rng: np.random.Generator, mask: np.ndarray, steps: int) -> np.ndarray:
        """[steps, B, options of all] float32: Gumbel noise, and minus infinity where `mask` is false."""
        waiting_times = rng.standard_exponential((steps, *mask.shape), np.float32)
        with np.errstate(divide="ignore"):
            return np.where(mask, -np.log(waiting_times), np.float32(-np.inf))

    def choose(self, policy: np.ndarray, noise: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Sample actions [B, K] int64; 0 for a choice that a task does not have."""
        scores = policy + noise if mask is None else np.where(mask, policy + noise, np.float32(-np.inf))
        padded = np.concatenate([scores, np.full((len(scores), 1), -np.inf, np.float32)], axis=1)
        return padded[:, self._places].argmax(-1)

    def places_in(self, spaces: Growth) -> HeadPlaces:
        return HeadPlaces(spaces.policy_places, spaces.mask_places)

    def initialise(self, layer: nn.Linear, generator: torch.Generator) -> None:
        near_zero(layer, generator)
