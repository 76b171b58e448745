"""A single choice: a categorical policy with masks that are exact."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from clearl.growth import Growth
from clearl.nets.heads.head import Described, HeadPlaces
from clearl.spaces import ActionSpec

# Finite, so that 0 * log(0) is 0 and no gradient is NaN; far below any logit, so that the probability is exactly 0.
_IMPOSSIBLE = -1e30
# The largest float32 below 1: a float64 uniform may round up to 1 on the way here.
_BELOW_ONE = 1 - 2**-24


class MaskedCategorical:
    """A categorical over A actions of which only those in the mask are possible.

    Masked actions have probability exactly 0, and neither values nor gradients of any method are NaN.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        """logits [..., A]; mask [..., A] bool, broadcast against the logits; None means that all are possible."""
        if mask is not None:
            logits = torch.where(mask, logits, _IMPOSSIBLE)
        self._logits = logits
        self.log_probs = logits.log_softmax(-1)
        """[..., A]; about -1e30 where masked."""

    @property
    def probs(self) -> Tensor:
        """[..., A]."""
        return self.log_probs.exp()

    def log_prob(self, action: Tensor) -> Tensor:
        """log pi(a), shape of `action` [...]."""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """H[pi], [...]."""
        return -(self.probs * self.log_probs).sum(-1)

    def kl(self, other: MaskedCategorical) -> Tensor:
        """KL[self || other], [...]."""
        return (self.probs * (self.log_probs - other.log_probs)).sum(-1)

    def sample(self, uniform: Tensor) -> Tensor:
        """Sample actions [...] by inversion of `uniform` [...] in [0, 1); the same numbers give the same actions."""
        cumulative = self.probs.cumsum(-1)
        # Scaling by the last entry, which rounding leaves beside 1, keeps the threshold below it for every uniform.
        threshold = uniform.to(cumulative.dtype).clamp(max=_BELOW_ONE) * cumulative[..., -1]
        return (cumulative <= threshold.unsqueeze(-1)).sum(-1)

    def mode(self) -> Tensor:
        """Return the likeliest actions [...]."""
        return self.log_probs.argmax(-1)

    def fisher_roots(self, uniform: Tensor) -> Tensor:
        """log pi of a sampled action, [..., 1]."""
        return self.log_prob(self.sample(uniform)).unsqueeze(-1)

    def implied_kl(self, behaviour: MaskedCategorical, rho_bar: float) -> Tensor:
        """KL[self || pi~] with pi~ = min(rho_bar mu, self), normalised: the policy that V-trace evaluates."""
        implied = torch.minimum(behaviour.log_probs + math.log(rho_bar), self.log_probs).log_softmax(-1)
        return (self.probs * (self.log_probs - implied)).sum(-1)

    def softened(self, temperature: float) -> MaskedCategorical:
        """pi^(1 / temperature), normalised; masked actions stay impossible."""
        return MaskedCategorical(self._logits / temperature)


class CategoricalHead(nn.Module):
    """One of n options. The policy is n logits, before the mask."""

    def __init__(self, action: ActionSpec) -> None:
        super().__init__()
        assert action.is_discrete, f"a single choice is needed, got {action}"
        self.action = action
        self.raw_size = self.embedding_size = action.policy_size
        self.uniform_shape = ()

    def policy(self, raw: Tensor) -> Tensor:
        return raw

    def distribution(self, policy: Tensor, mask: Tensor | None = None) -> MaskedCategorical:
        return MaskedCategorical(policy, mask)

    def described(self, policy: Tensor, mask: Tensor) -> dict[str, Described]:
        return describe_options(policy, mask)

    def embed(self, action: Tensor) -> Tensor:
        """Encode one-hot, as bools."""
        return action.unsqueeze(-1) == torch.arange(self.embedding_size, device=action.device)

    def noise(self, rng: np.random.Generator, mask: np.ndarray, steps: int) -> np.ndarray:
        """[steps, B, A] float32: Gumbel noise, and minus infinity where `mask` [B, A] is false.

        Drawn for many steps at once, because while acting an operation on so few numbers costs more than the numbers.
        """
        waiting_times = rng.standard_exponential((steps, *mask.shape), np.float32)
        with np.errstate(divide="ignore"):  # a time of 0 is a very large noise, as it should be
            return np.where(mask, -np.log(waiting_times), np.float32(-np.inf))

    def choose(self, policy: np.ndarray, noise: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Sample actions [B] int64 from the softmax of the logits: the highest sum of logit and noise."""
        scores = policy + noise
        return (scores if mask is None else np.where(mask, scores, np.float32(-np.inf))).argmax(-1)

    def places_in(self, spaces: Growth) -> HeadPlaces:
        return HeadPlaces(spaces.policy_places, spaces.mask_places)

    def initialise(self, layer: nn.Linear, generator: torch.Generator) -> None:
        near_zero(layer, generator)


def describe_options(policy: Tensor, mask: Tensor) -> dict[str, Described]:
    """Describe the logits [..., n] of all options."""
    about = f"unnormalised log-probabilities of all options, one choice after another; {_IMPOSSIBLE:g} if masked"
    return {"logits": Described(torch.where(mask, policy, _IMPOSSIBLE), about)}


@torch.no_grad()
def near_zero(layer: nn.Linear, generator: torch.Generator) -> None:
    """Initialise policies that hardly depend on the state: uniform over a task's options, means near 0."""
    layer.weight.uniform_(-1, 1, generator=generator).mul_(0.01 / layer.in_features**0.5)
