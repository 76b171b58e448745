"""Real numbers: a diagonal Gaussian before the tanh that keeps an action within its bounds.

Actions are sampled and stored before squashing. The Jacobian of the tanh cancels in pi / mu and in KL[mu || pi], so
that V-trace and policy cloning have the closed forms of plain Gaussians; only the entropy must know of it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from clearl.errors import ConfigError
from clearl.growth import Growth
from clearl.nets.heads.categorical import near_zero
from clearl.nets.heads.head import Described, HeadPlaces
from clearl.spaces import ActionSpec

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_NODES = 16  # of the quadrature of the squashed entropy: off by less than 0.01 up to a standard deviation of 2
_SMALLEST_UNIFORM = 2**-24


@dataclass(frozen=True)
class StdSettings:
    """The source of a Gaussian's standard deviation, and its limits, before squashing."""

    source: str = "network"
    """"network": of the features of each step; "free": parameters of their own, the same in every state."""
    initial: float = 0.5
    floor: float = 0.05
    """Keeps a policy that has settled able to learn another task."""
    ceiling: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.floor < self.initial < self.ceiling:
            raise ConfigError(
                f"action_std_floor < action_std_initial < action_std_ceiling is needed, got {self.floor:g}, "
                f"{self.initial:g} and {self.ceiling:g}"
            )


class SquashedGaussian:
    """Independent normal numbers [..., D]. Dimensions outside the mask are left out of every sum."""

    def __init__(self, mean: Tensor, log_std: Tensor, bounded: Tensor, mask: Tensor | None) -> None:
        """mean and log_std [..., D]; bounded [D] bool: which become their tanh; mask [..., D] bool, broadcast."""
        self._mean, self._log_std, self._bounded = mean, log_std, bounded
        self._mask = torch.ones_like(bounded) if mask is None else mask

    def log_prob(self, action: Tensor) -> Tensor:
        """Density of actions [..., D] before squashing."""
        standard = (action - self._mean) * torch.exp(-self._log_std)
        return self._sum(-0.5 * standard.square() - self._log_std - _HALF_LOG_TAU)

    def entropy(self) -> Tensor:
        """H of the action after squashing, of bounded ones to [-1, 1].

        H[tanh x] = H[x] + E[log(1 - tanh(x)^2)], the expectation by Gauss-Hermite quadrature: without it, nothing
        keeps a mean from drifting to where the tanh is flat.
        """
        plain = self._log_std + (0.5 + _HALF_LOG_TAU)
        return self._sum(torch.where(self._bounded, plain + self._log_slope(), plain))

    def kl(self, other: SquashedGaussian) -> Tensor:
        ratio = 2 * (self._log_std - other._log_std)
        gap = (self._mean - other._mean) * torch.exp(-other._log_std)
        return self._sum(0.5 * (torch.exp(ratio) + gap.square() - 1 - ratio))

    def sample(self, uniform: Tensor) -> Tensor:
        """Sample actions [..., D] by inversion, 0 in dimensions outside the mask."""
        within = uniform.to(self._mean.dtype).clamp(_SMALLEST_UNIFORM, 1 - _SMALLEST_UNIFORM)
        action = self._mean + torch.exp(self._log_std) * torch.special.ndtri(within)
        return torch.where(self._mask, action.detach(), 0.0)

    def mode(self) -> Tensor:
        """Return the mean: the middle of the action's distribution after squashing, too."""
        return torch.where(self._mask, self._mean, 0.0)

    def fisher_roots(self, uniform: Tensor) -> Tensor:
        """[..., 2 D]: the information is 1 / std^2 of a mean and 2 of a log standard deviation, whatever is sampled."""
        means = self._mean * torch.exp(-self._log_std).detach()
        return torch.cat([torch.where(self._mask, part, 0.0) for part in (means, math.sqrt(2) * self._log_std)], -1)

    def softened(self, temperature: float) -> SquashedGaussian:
        """Return the density to the power of 1 / temperature: a normal one with `temperature` times the variance."""
        return SquashedGaussian(self._mean, self._log_std + 0.5 * math.log(temperature), self._bounded, self._mask)

    def _log_slope(self) -> Tensor:
        """E[log(1 - tanh(x)^2)], [..., D]."""
        nodes, weights = (torch.from_numpy(part).to(self._mean) for part in _hermite())
        x = self._mean.unsqueeze(-1) + torch.exp(self._log_std).unsqueeze(-1) * nodes
        return (2 * (math.log(2) - x - nn.functional.softplus(-2 * x)) * weights).sum(-1)

    def _sum(self, by_dimension: Tensor) -> Tensor:
        return torch.where(self._mask, by_dimension, 0.0).sum(-1)


@functools.cache  # a millisecond, and asked for in every update
def _hermite() -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return nodes, weights / math.sqrt(2 * math.pi)


class GaussianHead(nn.Module):
    """Means, then log standard deviations between a floor and a ceiling."""

    bounded: Tensor

    def __init__(self, action: ActionSpec, std: StdSettings) -> None:
        super().__init__()
        assert action.bounded and not action.choices, f"real numbers are needed, got {action}"
        self.action, self.std = action, std
        self.embedding_size = self.reals = action.reals
        self.uniform_shape = (action.reals,)
        free = std.source == "free"
        self.raw_size = action.reals if free else 2 * action.reals
        self.free_std = nn.Parameter(torch.zeros(action.reals)) if free else None
        self.register_buffer("bounded", torch.tensor(action.bounded), persistent=False)
        self._low, self._range = math.log(std.floor), math.log(std.ceiling / std.floor)
        share = math.log(std.initial / std.floor) / self._range
        self._shift = math.log(share / (1 - share))
        self._prepared: Tensor | None = None

    def prepare_acting(self) -> None:
        """Keep a free deviation: it changes with the weights only."""
        with torch.no_grad():
            self._prepared = None if self.free_std is None else self._log_std(self.free_std)

    def policy(self, raw: Tensor) -> Tensor:
        if self._prepared is not None and not torch.is_grad_enabled():
            return torch.cat([raw, self._prepared.expand_as(raw)], -1)
        if self.free_std is None:
            mean, std = raw.chunk(2, -1)
        else:
            mean, std = raw, self.free_std.expand_as(raw)
        return torch.cat([mean, self._log_std(std)], -1)

    def _log_std(self, std: Tensor) -> Tensor:
        # A sigmoid between the limits, not a clamp: at a limit, too, there is a gradient that leads back.
        return self._low + self._range * torch.sigmoid(std + self._shift)

    def distribution(self, policy: Tensor, mask: Tensor | None = None) -> SquashedGaussian:
        mean, log_std = policy.chunk(2, -1)
        return SquashedGaussian(mean, log_std, self.bounded, mask)

    def described(self, policy: Tensor, mask: Tensor) -> dict[str, Described]:
        mean, log_std = policy.chunk(2, -1)
        likeliest = self.distribution(policy, mask).mode()
        bounds = (
            "the real numbers of `action`, after tanh if they have bounds: the environment takes "
            "`low + (squashed + 1) / 2 * (high - low)`"
        )
        drawn = "the mean of each real number before tanh: to sample, draw `mean + exp(log_std) * noise`"
        return {
            "squashed": Described(torch.where(self.bounded, likeliest.tanh(), likeliest), bounds),
            "mean": Described(mean, drawn),
            "log_std": Described(log_std, "the logarithm of the standard deviation of each real number before tanh"),
        }

    def embed(self, action: Tensor) -> Tensor:
        """Squash, so that the inputs of a recurrent core stay small."""
        return action.tanh()

    def noise(self, rng: np.random.Generator, mask: np.ndarray, steps: int) -> np.ndarray:
        """[steps, B, D] float32: standard normal, and minus infinity where `mask` [B, D] is false."""
        drawn = rng.standard_normal((steps, *mask.shape), np.float32)
        return np.where(mask, drawn, np.float32(-np.inf))

    def choose(self, policy: np.ndarray, noise: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Sample actions [B, D] float32, 0 where a task has no such dimension; a state's mask is about choices only."""
        mean, log_std = policy[:, : self.reals], policy[:, self.reals :]
        there = noise > -np.inf
        if there.all():
            return mean + np.exp(log_std) * noise
        action = mean + np.exp(log_std) * np.where(there, noise, np.float32(0))
        return np.where(there, action, np.float32(0))

    def places_in(self, spaces: Growth) -> HeadPlaces:
        """The policy layer gives the means, and the deviations unless they are free."""
        own = {} if self.free_std is None else {"free_std": np.arange(self.reals)}
        return HeadPlaces(spaces.policy_places[: self.raw_size], spaces.mask_places, own)

    @torch.no_grad()
    def initialise(self, layer: nn.Linear, generator: torch.Generator) -> None:
        """Initialise means near 0 and the initial standard deviation in every state."""
        near_zero(layer, generator)
        if self.free_std is not None:
            self.free_std.zero_()
