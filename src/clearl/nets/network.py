"""The seam of networks: act on one step, or unroll over T+1 steps, with the same result."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from clearl.errors import ConfigError
from clearl.nets.heads import Head, StdSettings, make_head
from clearl.nets.lstm import LstmCore
from clearl.nets.normalise import ReturnScale
from clearl.nets.records import build_record_torso
from clearl.nets.stages import Dense
from clearl.nets.torsos import PlainTorso, Torso, VectorInput, build_torso
from clearl.seeding import derive
from clearl.spaces import ObservationSpec, TaskSpec


class StepInput(NamedTuple):
    """The inputs of a network; leading axes [B] for one step or [T, B] for an unroll."""

    observation: torch.Tensor  # [..., *observation_shape] uint8, bool or float32
    last_action: torch.Tensor  # [..., *action_shape]
    last_reward: torch.Tensor  # [...] float32, clipped
    first: torch.Tensor  # [...] bool: the recurrent state is reset before this step

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> StepInput:
        """Return the same input with every tensor changed in the same way."""
        return StepInput(*map(change, self))


class StepOutput(NamedTuple):
    policy: torch.Tensor  # [..., policy_size], unmasked; `PolicyNetwork.head` makes distributions of it
    value: torch.Tensor  # [...]; in the unit of rewards by `act`, divided by the return scale by `unroll`
    state: torch.Tensor  # [B, core_size]


class PolicyNetwork(Protocol):
    """A policy and a value over a shared torso. Implementations are `nn.Module`s."""

    core_size: int
    """Floats of recurrent state a slot carries; 0 without a memory."""

    @property
    def head(self) -> Head:
        """The head that makes distributions and actions of the network's policies."""
        ...

    def act(self, inputs: StepInput, state: torch.Tensor, *, column: str = "act") -> StepOutput:
        """Run one step: inputs [B, ...], state [B, core_size]. `column` is "act", "evaluate" or an evaluated column."""
        ...

    def unroll(self, inputs: StepInput, state: torch.Tensor) -> StepOutput:
        """Run T steps: inputs [T, B, ...], state [B, core_size] before the first."""
        ...

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        """Return the columns to evaluate on a task, the plotted one first; a plain network has one, called ""."""
        ...


@runtime_checkable
class KeepsStatistics(Protocol):
    """A network that normalises observations, and learns how from new experience."""

    def observe(self, observation: torch.Tensor) -> None:
        """Take in more observations [N, ...]."""
        ...


@runtime_checkable
class ShowsNumbers(Protocol):
    """A network that exposes its numeric inputs, for methods that train a model of their own."""

    def numbers(self, observation: torch.Tensor) -> torch.Tensor:
        """Return observations [N, ...] as [N, n] float32: bytes scaled, parts of records joined, statistics applied."""
        ...


@runtime_checkable
class ScalesReturns(Protocol):
    """A network that learns values in units of the deviation of returns, and learns that from new experience."""

    def observe_returns(self, returns: torch.Tensor) -> None:
        """Update the statistics with discounted returns [N], in the unit of rewards."""
        ...

    def return_scale(self) -> torch.Tensor:
        """Return the unit of the values that `unroll` gives, a single float32."""
        ...


def as_module(network: PolicyNetwork) -> nn.Module:
    """Return the network as the `nn.Module` that it is."""
    assert isinstance(network, nn.Module)
    return network


class ActorCritic(nn.Module):
    """Torso, perhaps an LSTM core, a linear policy and a linear value. Without a core, only the observation counts."""

    def __init__(
        self, torso: Torso | PlainTorso, core: LstmCore | None, head: Head, returns: ReturnScale | None = None
    ) -> None:
        """With `returns`, values are learnt in its unit, and rewards reach the core in that unit."""
        super().__init__()
        self.torso, self.core, self.head, self.returns = torso, core, head, returns
        self.core_size = core.state_size if core else 0
        self.feature_size = core.size if core else torso.out_size
        self.policy = nn.Linear(self.feature_size, head.raw_size)
        self.value = nn.Linear(self.feature_size, 1)
        self._columns: tuple[Tensor, Tensor] | None = None

    def prepare_acting(self) -> None:
        """Prepare as `Dense.prepare_acting`, and join both heads: with so few rows a product costs mostly its call."""
        with torch.no_grad():
            weight = torch.cat([self.policy.weight, self.value.weight]).t().contiguous()
            self._columns = torch.cat([self.policy.bias, self.value.bias]), weight

    def act(self, inputs: StepInput, state: Tensor, *, column: str = "act") -> StepOutput:
        """Run one step: without a core just the layers, with one an unroll of length one."""
        if self.core is None:
            features = self.torso(inputs.observation)
            if self._columns is None or torch.is_grad_enabled():
                return self.unscaled(self._heads(features, state))
            bias, weight = self._columns
            both = torch.addmm(bias, features, weight)
            return self.unscaled(StepOutput(self.head.policy(both[:, :-1]), both[:, -1], state))
        output = self.unroll(inputs.map(lambda part: part.unsqueeze(0)), state)
        return self.unscaled(StepOutput(output.policy[0], output.value[0], output.state))

    def unroll(self, inputs: StepInput, state: Tensor) -> StepOutput:
        return self._heads(*self.remember(self.torso(inputs.observation.flatten(0, 1)), inputs, state))

    def _heads(self, features: Tensor, state: Tensor) -> StepOutput:
        # Under autocast the heads answer in bfloat16, which is too coarse for log-probabilities and targets.
        policy = self.head.policy(self.policy(features).float())
        return StepOutput(policy, self.value(features).squeeze(-1).float(), state)

    def observe(self, observation: Tensor) -> None:
        """Take in the statistics of more observations [N, ...], where they are normalised."""
        self.torso.observe(observation)

    def numbers(self, observation: Tensor) -> Tensor:
        return self.torso.numbers(observation)

    def observe_returns(self, returns: Tensor) -> None:
        if self.returns is not None:
            self.returns.observe(returns[:, None])

    def return_scale(self) -> Tensor:
        return torch.ones(()) if self.returns is None else self.returns.scale

    def unscaled(self, output: StepOutput) -> StepOutput:
        """Return the output with its value in the unit of rewards: stored values outlive the present scale."""
        return output if self.returns is None else output._replace(value=output.value * self.returns.scale)

    def remember(self, features: Tensor, inputs: StepInput, state: Tensor) -> tuple[Tensor, Tensor]:
        """Pass the torso's features [T*B, F] through the core, if there is one: ([T, B, feature_size], state)."""
        features = features.unflatten(0, inputs.first.shape)
        if self.core is None:
            return features, state
        reward = inputs.last_reward if self.returns is None else inputs.last_reward / self.returns.scale
        return self.core(features, self.head.embed(inputs.last_action), reward, inputs.first, state)

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        return ("",)

    def initialise(self, seed: int) -> None:
        """Draw fresh parameters that depend on `seed` only."""
        self.head.initialise(self.policy, initialise(self, seed))


def initialise(module: nn.Module, seed: int) -> torch.Generator:
    """Draw weights uniformly with variance 1/fan-in (as IMPALA's), biases 0; bit for bit the same on every machine."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, LstmCore):
            part.initialise(generator)
        elif isinstance(part, nn.Conv2d | nn.Linear):
            bound = (3 / part.weight[0].numel()) ** 0.5
            nn.init.uniform_(part.weight, -bound, bound, generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm):
            part.reset_parameters()
    return generator


def _build_torso(name: str, spec: ObservationSpec, normalise: bool) -> Torso | PlainTorso:
    if spec.is_record:
        return build_record_torso(name, spec, normalise=normalise)
    part, shape = spec.parts[""], spec.shapes[""]
    real = part.dtype == "float32" and not part.is_image
    return build_torso(name, shape, inputs=VectorInput(shape[0]) if normalise and real else None)


def _add_layer_norm(body: nn.Module, torso: str) -> None:
    layers = [part for part in body.modules() if isinstance(part, Dense)]
    if not layers:
        raise ConfigError(
            f"layer_norm is for the dense layers of the built-in torsos, and torso {torso!r} has none of them; set "
            "layer_norm to false, and normalise in the torso itself"
        )
    for layer in layers:
        layer.add_layer_norm()


def build_network(
    spec: TaskSpec, *, torso: str, lstm: bool, lstm_size: int, seed: int, std: StdSettings | None = None,
    normalise: bool = False, layer_norm: bool = False, scale_returns: bool = False,
) -> ActorCritic:  # fmt: skip
    """Return a network for environments of this spec, initialised from `seed`.

    Torch's global random state is left alone.
    """
    if lstm and lstm_size < 1:
        raise ConfigError(f"lstm_size must be at least 1, got {lstm_size}")
    # Constructing layers draws numbers that `initialise` replaces.
    with torch.random.fork_rng(devices=[]):
        body, head = _build_torso(torso, spec.observation, normalise), make_head(spec.action, std)
        if layer_norm:
            _add_layer_norm(body, torso)
        core = LstmCore(body.out_size, head.embedding_size, lstm_size) if lstm else None
        network = ActorCritic(body, core, head, ReturnScale() if scale_returns else None)
    network.initialise(derive(seed, "network"))
    return network
